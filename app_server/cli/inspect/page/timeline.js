// One turn: where its time went, and its items as bars, with the questions that it waited for.

import { count, duration, element, short } from "./format.js";

const NAMES = { model: "model", tool: "tools", question: "questions", wait: "waits" };
const EXPLAINED = {
  model: "the model writes or thinks",
  tool: "a tool runs",
  question: "the client or its user is asked",
  wait: "nothing is open: the model has not begun to answer, or the server is at work",
};

export class Timeline {
  constructor(box, { onJump }) {
    this.box = box;
    this.onJump = onJump;
  }

  // A turn, or nothing. Where the same is shown already, what has the focus keeps it.
  draw(turn, pinned) {
    if (!turn) {
      this.box.replaceChildren(element("p", { className: "empty" }, "No turn yet."));
      return;
    }
    const focused = this.box.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const questions = new Map(Map.groupBy ? Map.groupBy(turn.questions, (each) => each.item) : grouped(turn.questions));
    const alone = turn.questions.filter((each) => !turn.bars.some((bar) => bar.id === each.item));
    const rows = [...turn.bars.map((bar) => this.#bar(turn, bar, questions.get(bar.id) ?? [])), ...alone.map((each) => this.#alone(turn, each))];
    const list = element("ol", { className: "bars", "aria-label": "Items" }, ...rows);
    const more = turn.more ? [element("p", { className: "quiet words" }, `… ${count(turn.more)} items before these`)] : [];
    this.box.replaceChildren(head(turn, pinned), strip(turn), legend(turn), ...more, list);
    if (focused) this.box.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #button(key, n, className, label, ...children) {
    const button = element("button", { className, title: label }, ...children);
    button.setAttribute("aria-label", label);
    button.dataset.key = key;
    button.addEventListener("click", () => this.onJump(n));
    return button;
  }

  #bar(turn, bar, questions) {
    const took = duration(bar.end - bar.start);
    const name = bar.kind || bar.id;
    const label = `${name}, ${bar.open ? "runs since" : "took"} ${took}${bar.deltas ? `, ${count(bar.deltas)} deltas` : ""}`;
    const track = element("span", { className: "track" }, placed("whole", turn, bar.start, bar.end));
    if (bar.written) track.append(placed("deltas", turn, ...bar.written));
    const row = this.#button(`bar ${bar.id}`, bar.n, `bar is-${bar.what || "user"}`, label,
      element("span", { className: "name" }, name), track, element("span", { className: "length" }, bar.deltas ? `×${count(bar.deltas)}` : took));
    row.classList.toggle("is-open", bar.open);
    row.dataset.kind = bar.kind;
    return element("li", {}, row, ...questions.map((each) => this.#alone(turn, each)));
  }

  #alone(turn, each) {
    const took = duration(each.end - each.start);
    const label = `${each.method}, ${each.open ? "waits since" : "waited"} ${took}`;
    const row = this.#button(`question ${each.n}`, each.n, "bar gap is-question", label,
      element("span", { className: "name" }, each.method.split("/").at(-1)), element("span", { className: "track" }, placed("whole", turn, each.start, each.end)), element("span", { className: "length" }, took));
    row.classList.toggle("is-open", each.open);
    return row;
  }
}

function grouped(questions) {
  const found = new Map();
  for (const each of questions) found.set(each.item, [...(found.get(each.item) ?? []), each]);
  return found;
}

function placed(className, turn, start, end) {
  const mark = element("i", { className });
  mark.style.left = `min(${(start / turn.length) * 100}%, 100% - 3px)`;
  mark.style.width = `max(3px, ${((end - start) / turn.length) * 100}%)`;
  return mark;
}

function head(turn, pinned) {
  const words = [
    element("strong", { title: turn.turn }, `Turn ${short(turn.turn)}`),
    element("span", {}, `${turn.ended ? "took" : "runs since"} ${duration(turn.length)}`),
    element("span", {}, `${count(turn.items)} items`),
    element("span", {}, `${count(turn.deltas)} deltas`),
  ];
  if (turn.questions.length) words.push(element("span", { className: "waits" }, `waited ${duration(turn.totals.question)} for ${turn.questions.length === 1 ? "an answer" : `${count(turn.questions.length)} answers`}`));
  if (!pinned) words.push(element("span", { className: "quiet" }, "newest"));
  return element("div", { className: "words head" }, ...words);
}

// One line of the whole turn, each moment in the colour of what it went to.
function strip(turn) {
  const told = Object.keys(NAMES).map((what) => `${NAMES[what]} ${share(turn, what)}`).join(", ");
  const line = element("div", { className: "strip", role: "img", "aria-label": `Where the time went: ${told}` });
  for (const [what, start, end] of turn.pieces) {
    const piece = placed(`of-${what}`, turn, start, end);
    piece.title = `${NAMES[what]}, ${duration(end - start)}`;
    line.append(piece);
  }
  return line;
}

const share = (turn, what) => `${Math.round((turn.totals[what] / turn.length) * 100)} %`;

function legend(turn) {
  const rows = Object.keys(NAMES).map((what) => element("div", { title: EXPLAINED[what] },
    element("dt", {}, element("i", { className: `of-${what}` }), NAMES[what]), element("dd", {}, `${duration(turn.totals[what])}, ${share(turn, what)}`)));
  return element("dl", { className: "legend" }, ...rows);
}
