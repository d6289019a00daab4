// The message that is looked at: what is known of it, and its JSON as a tree that can be folded and searched.

import { bytes, clock, duration, element, short } from "./format.js";

const OPEN_DEPTH = 4;
const MOST_CHILDREN = 500;

export class MessagePane {
  constructor({ title, facts, json, find, found, copy, copyTest }, { onJump, onTurn, fetchEntry, fetchTest, notice }) {
    Object.assign(this, { title, facts, json, find, found, copyButton: copy, copyTest, onJump, onTurn, fetchEntry, notice });
    find.addEventListener("input", () => this.search(find.value));
    find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
    });
    copy.addEventListener("click", () => this.copy());
    copyTest.addEventListener("click", () => this.#copied(async () => fetchTest(this.row.n), "The test was copied."));
    this.show(undefined);
  }

  copy() {
    if (this.row) this.#copied(async () => this.pretty, "The message was copied as JSON.");
  }

  async #copied(text, told) {
    try {
      await navigator.clipboard.writeText(await text());
      this.notice(told);
    } catch (error) {
      this.notice(`Nothing was copied: ${error.message}`);
    }
  }

  // A message as the list has it; the rest of it is asked for.
  async show(row) {
    this.row = row;
    this.hits = [];
    this.facts.replaceChildren();
    this.found.textContent = "";
    this.copyButton.disabled = this.copyTest.disabled = !row;
    if (!row) {
      this.title.textContent = "Message";
      this.json.replaceChildren(element("p", { className: "empty" }, "Choose a message to see it here."));
      return;
    }
    this.title.textContent = row.method ?? row.kind;
    this.copyTest.disabled = row.form !== "message";
    this.#facts(row, {});
    this.#content(row, row.text);
    const told = await this.fetchEntry(row.n).catch(() => undefined);
    if (this.row !== row || !told) return;
    this.#facts(row, told);
    if (row.cut) this.#content(row, told.row.text);
  }

  // `partner` and `open` are known once the inspector has said so.
  #facts(row, { partner, open }) {
    const words = [
      element("span", { className: `chip from-${row.from}` }, { client: "→ client", server: "← server" }[row.from] ?? row.from),
      element("span", { className: "chip" }, row.kind),
      element("span", {}, clock(row.at)),
      element("span", {}, bytes(row.size)),
    ];
    if (partner) {
      const to = row.request !== undefined ? "request" : "answer";
      const jump = element("button", { className: "link" }, `its ${to}, ${duration(Math.abs(row.at - partner.at))}`);
      jump.addEventListener("click", () => this.onJump(partner.n));
      words.push(jump);
    } else if (open) words.push(element("span", { className: "chip waits" }, "not answered yet"));
    this.partner = partner?.n ?? row.request;
    if (row.thread) words.push(element("span", { title: row.thread }, `thread ${short(row.thread)}`));
    if (row.turn) {
      const turn = element("button", { className: "link", title: row.turn }, `turn ${short(row.turn)}`);
      turn.addEventListener("click", () => this.onTurn(row));
      words.push(turn);
    }
    if (row.unfinished) words.push(element("span", { className: "chip waits" }, "without an end of line"));
    const broken = (row.wrong ?? []).map(([rule, problem]) =>
      element("div", { className: rule === "unknown-method" ? "violation is-note" : "violation" }, element("strong", {}, rule), ` ${problem}`));
    this.facts.replaceChildren(element("div", { className: "words" }, ...words), ...broken);
  }

  #content(row, text) {
    this.value = undefined;
    this.pretty = text;
    if (row.form === "message" || row.form === "event") {
      try {
        this.value = JSON.parse(text);
        this.pretty = JSON.stringify(this.value, null, 2);
      } catch {
        // a cut message: as text until the rest is here
      }
    }
    this.json.replaceChildren(
      this.value === undefined ? element("pre", {}, text) : this.#node(undefined, this.value, 0, []),
    );
    this.json.scrollTop = 0;
    if (this.find.value) this.search(this.find.value);
  }

  #node(name, value, depth, path) {
    const key = name === undefined ? [] : [element("span", { className: "key" }, JSON.stringify(name)), ": "];
    if (value === null || typeof value !== "object") {
      const line = element("div", { className: "leaf" }, ...key, scalar(value));
      line.dataset.path = JSON.stringify(path);
      return line;
    }
    const isList = Array.isArray(value);
    const names = Object.keys(value);
    const [open, close] = isList ? "[]" : "{}";
    if (!names.length) {
      const line = element("div", { className: "leaf" }, ...key, open + close);
      line.dataset.path = JSON.stringify(path);
      return line;
    }
    const size = isList ? `${names.length} items` : names.slice(0, 4).join(", ") + (names.length > 4 ? ", …" : "");
    const head = element("summary", {}, ...key, open, element("span", { className: "folded" }, ` ${size} ${close}`));
    head.dataset.path = JSON.stringify(path);
    const box = element("details", {}, head);
    const fill = () => {
      if (box.childElementCount > 1) return;
      const inner = element("div", { className: "inner" });
      for (const each of names.slice(0, MOST_CHILDREN)) {
        inner.append(this.#node(isList ? undefined : each, value[each], depth + 1, [...path, each]));
      }
      if (names.length > MOST_CHILDREN) inner.append(element("div", { className: "quiet" }, `… ${names.length - MOST_CHILDREN} more`));
      box.append(inner, element("div", { className: "close" }, close));
    };
    box.addEventListener("toggle", () => box.open && fill());
    if (depth < OPEN_DEPTH) {
      fill();
      box.open = true;
    }
    box.fill = fill;
    return box;
  }

  search(text) {
    this.json.querySelectorAll(".hit").forEach((each) => each.classList.remove("hit", "now"));
    this.hits = text && this.value !== undefined ? [...paths(this.value, text.toLowerCase(), [])] : [];
    this.current = -1;
    this.found.textContent = text ? `${this.hits.length ? 0 : "no"} of ${this.hits.length}`.replace("no of 0", "not found") : "";
    if (this.hits.length) this.step(1);
  }

  step(by) {
    if (!this.hits.length) return;
    this.current = (this.current + by + this.hits.length) % this.hits.length;
    this.found.textContent = `${this.current + 1} of ${this.hits.length}`;
    const line = this.#reveal(this.hits[this.current]);
    this.json.querySelectorAll(".now").forEach((each) => each.classList.remove("now"));
    line?.classList.add("hit", "now");
    line?.scrollIntoView({ block: "nearest" });
  }

  #reveal(path) {
    let box = this.json.firstElementChild;
    for (let depth = 0; depth <= path.length && box; depth += 1) {
      const wanted = JSON.stringify(path.slice(0, depth));
      const line = box.matches?.(`[data-path]`) ? box : box.firstElementChild;
      if (depth === path.length) return line?.dataset.path === wanted ? line : null;
      box.fill?.();
      box.open = true;
      const next = JSON.stringify(path.slice(0, depth + 1));
      box = [...(box.querySelector(":scope > .inner")?.children ?? [])].find(
        (each) => (each.dataset.path ?? each.firstElementChild?.dataset.path) === next,
      );
    }
    return null;
  }
}

function scalar(value) {
  const kind = value === null ? "null" : typeof value;
  const text = kind === "string" ? JSON.stringify(value) : String(value);
  return element("span", { className: `is-${kind}` }, text);
}

// Where a name or a value has the text, in order.
function* paths(value, text, path) {
  if (value === null || typeof value !== "object") {
    if (String(value).toLowerCase().includes(text) || String(path.at(-1) ?? "").toLowerCase().includes(text)) yield path;
    return;
  }
  const isList = Array.isArray(value);
  if (!isList && path.length && String(path.at(-1)).toLowerCase().includes(text)) yield path;
  for (const name of Object.keys(value)) yield* paths(value[name], text, [...path, name]);
}
