// One turn: its items as bars, their deltas folded into them, and approvals as gaps in which the turn waits.

import { count, duration, element, shape, short, summary } from "./format.js";

const ROW = 24;
const LEFT = 150;
const TOP = 26;
const RIGHT = 64;

// What the rows of a turn say, as bars. Times are in milliseconds since the turn began.
export function barsOf(turn, session) {
  const begin = turn.started ?? turn.first;
  const end = turn.ended ?? session.rows[session.rows.length - 1].at;
  const items = new Map();
  const gaps = [];
  for (const row of turn.rows) {
    const at = row.at - begin;
    if (row.kind === "request" && row.from === "server") {
      const answer = session.row(session.answers.get(row.n));
      gaps.push({ row, item: row.item, start: at, end: (answer?.at ?? end) - begin, open: !answer });
    }
    if (!row.item) continue;
    let item = items.get(row.item);
    if (!item) items.set(row.item, (item = { id: row.item, kind: "", start: at, end: undefined, last: at, deltas: 0, size: 0, row }));
    item.kind ||= row.itemKind ?? "";
    item.last = Math.max(item.last, at);
    if (row.phase === "delta") {
      item.deltas += 1;
      item.size += row.size;
      item.firstDelta ??= at;
      item.lastDelta = at;
    }
    if (row.phase === "item starts") item.start = Math.min(item.start, at);
    if (row.phase === "item ends") item.end = at;
  }
  const bars = [...items.values()];
  for (const bar of bars) {
    bar.open = bar.end === undefined && turn.ended === undefined;
    bar.end ??= bar.open ? end - begin : bar.last;
  }
  return { bars, gaps, length: Math.max(1, end - begin), begin };
}

export class Timeline {
  constructor(box, { onJump }) {
    this.box = box;
    this.onJump = onJump;
    new ResizeObserver(() => this.draw()).observe(box);
  }

  // A turn of the session, or its last one; drawn where it can be seen.
  show(session, turn, pinned) {
    Object.assign(this, { session, turn, pinned });
    this.draw();
  }

  draw() {
    if (this.box.hidden || !this.session) return;
    const turn = this.turn;
    if (!turn) {
      this.box.replaceChildren(element("p", { className: "empty" }, "No turn yet."));
      return;
    }
    const found = barsOf(turn, this.session);
    const width = Math.max(320, this.box.clientWidth - 2);
    const height = TOP + found.bars.length * ROW + 10;
    const chart = shape("svg", { width, height, role: "img", "aria-label": `The turn ${turn.id} as a timeline` });
    const x = (ms) => LEFT + (ms / found.length) * (width - LEFT - RIGHT);
    this.#axis(chart, found.length, x, height);
    found.bars.forEach((bar, index) => this.#bar(chart, bar, found, x, TOP + index * ROW));
    this.box.replaceChildren(this.#head(turn, found), chart);
  }

  #head(turn, { bars, gaps, length, begin }) {
    const waited = gaps.reduce((sum, gap) => sum + gap.end - gap.start, 0);
    const state = turn.ended === undefined ? "runs" : "took";
    const words = [
      element("strong", { title: turn.id }, `Turn ${short(turn.id)}`),
      element("span", {}, `${state} ${duration(length)}`),
      element("span", {}, `${count(bars.length)} items`),
      element("span", {}, `${count(bars.reduce((sum, bar) => sum + bar.deltas, 0))} deltas`),
    ];
    if (gaps.length) words.push(element("span", { className: "waits" }, `waited ${duration(waited)} for ${gaps.length === 1 ? "an answer" : `${count(gaps.length)} answers`}`));
    if (!this.pinned) words.push(element("span", { className: "quiet" }, "newest"));
    return element("div", { className: "words head" }, ...words);
  }

  #axis(chart, length, x, height) {
    const step = niceStep(length / 5);
    for (let at = 0; at <= length; at += step) {
      chart.append(shape("line", { class: "grid", x1: x(at), x2: x(at), y1: 16, y2: height }));
      chart.append(shape("text", { class: "tick", x: x(at) + 3, y: 12 }, at ? duration(at) : "0"));
    }
  }

  #bar(chart, bar, found, x, y) {
    const group = shape("g", { class: `bar kind-${bar.kind}${bar.open ? " is-open" : ""}`, tabindex: 0, role: "button" });
    const gaps = found.gaps.filter((gap) => gap.item === bar.id);
    const width = Math.max(3, x(bar.end) - x(bar.start));
    const told = `${bar.kind || bar.id}, ${duration(bar.end - bar.start)}${bar.deltas ? `, ${count(bar.deltas)} deltas` : ""}`;
    group.setAttribute("aria-label", told);
    group.append(shape("title", {}, `${told}\n${bar.id}\n${summary(bar.row).slice(0, 200)}`));
    group.append(shape("rect", { class: "touch", x: 0, y, width: x(found.length) + RIGHT, height: ROW }));
    group.append(shape("text", { class: "name", x: 10, y: y + 16 }, trimmed(bar.kind || bar.id, 20)));
    group.append(shape("rect", { class: "whole", x: x(bar.start), y: y + 6, width, height: 12, rx: 3 }));
    if (bar.deltas) {
      const from = x(bar.firstDelta);
      group.append(shape("rect", { class: "deltas", x: from, y: y + 6, width: Math.max(3, x(bar.lastDelta) - from), height: 12, rx: 3 }));
    }
    for (const gap of gaps) {
      const wide = Math.max(3, x(gap.end) - x(gap.start));
      const mark = shape("rect", { class: `gap${gap.open ? " is-open" : ""}`, x: x(gap.start), y: y + 4, width: wide, height: 16, rx: 2 });
      mark.append(shape("title", {}, `${gap.row.method}: ${gap.open ? "waits" : "waited"} ${duration(gap.end - gap.start)}`));
      mark.addEventListener("click", (event) => {
        event.stopPropagation();
        this.onJump(gap.row);
      });
      group.append(mark);
    }
    const label = bar.deltas ? `×${count(bar.deltas)}` : duration(bar.end - bar.start);
    group.append(shape("text", { class: "length", x: Math.max(x(bar.start) + width, ...gaps.map((gap) => x(gap.end))) + 6, y: y + 16 }, label));
    group.addEventListener("click", () => this.onJump(bar.row));
    group.addEventListener("keydown", (event) => event.key === "Enter" && this.onJump(bar.row));
    chart.append(group);
  }
}

const trimmed = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((step) => step >= least);
}
