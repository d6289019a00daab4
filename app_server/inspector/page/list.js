// The list of messages: of however many lines only those in view are elements.

import { bytes, clock, duration, element, summary } from "./format.js";

const HEIGHT = 26;
const MORE = 12; // lines above and below the view
const ARROWS = { client: "→", server: "←", stderr: "!", inspector: "·" };
const FROM = { client: "client to server", server: "server to client", stderr: "stderr", inspector: "the inspector" };

export class List {
  constructor(box, { onSelect, onFollow }) {
    this.box = box;
    this.onSelect = onSelect;
    this.onFollow = onFollow;
    this.space = element("div", { className: "list-space" });
    box.append(this.space);
    this.pool = new Map(); // index → element
    this.selected = -1; // position of a row in the session
    this.following = true;
    box.addEventListener("scroll", () => this.#scrolled());
    box.addEventListener("click", (event) => this.#clicked(event));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  show(shown) {
    this.shown = shown;
    this.pool.forEach((line) => line.remove());
    this.pool.clear();
    this.refresh();
    if (this.selected >= 0 && shown.indexOf(this.selected) >= 0) this.reveal(shown.indexOf(this.selected));
    else if (!this.following) this.box.scrollTop = 0;
  }

  // After lines were added, or changed.
  refresh() {
    this.space.style.height = `${this.shown.lines.length * HEIGHT}px`;
    if (this.following) this.box.scrollTop = this.box.scrollHeight;
    this.draw();
  }

  draw() {
    if (!this.shown || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.#draw();
    });
  }

  #draw() {
    const { lines } = this.shown;
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - MORE);
    const last = Math.min(lines.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT) + MORE);
    for (const [index, line] of this.pool) {
      if (index < first || index >= last) {
        line.remove();
        this.pool.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      const drawn = this.pool.get(index);
      const state = `${lines[index].rows[0].position}/${lines[index].rows.length}/${this.#isSelected(index)}/${lines.length === index + 1}`;
      if (drawn?.dataset.state === state) continue;
      const line = this.#line(lines[index], index);
      line.dataset.state = state;
      if (drawn) drawn.replaceWith(line);
      else this.space.append(line);
      this.pool.set(index, line);
    }
  }

  #isSelected(index) {
    const { rows } = this.shown.lines[index];
    return this.selected >= rows[0].position && this.selected <= rows[rows.length - 1].position;
  }

  #line({ rows, of }, index) {
    const row = rows[0];
    const folded = rows.length > 1;
    const isSelected = this.#isSelected(index);
    const line = element("div", { className: `line from-${row.from} kind-${row.kind}`, role: "option", id: `line-${index}` });
    line.style.transform = `translateY(${index * HEIGHT}px)`;
    line.dataset.index = index;
    line.dataset.n = row.n;
    line.setAttribute("aria-selected", String(isSelected));
    line.setAttribute("aria-setsize", this.shown.lines.length);
    line.setAttribute("aria-posinset", index + 1);
    if (isSelected) this.box.setAttribute("aria-activedescendant", line.id);
    if (row.phase === "delta") line.classList.add("is-delta");
    if (of !== undefined) line.classList.add("is-part");
    const text = folded ? rows.slice(0, 60).map(summary).join("") : summary(row);
    const method = element("span", { className: "method" }, element("span", {}, row.method ?? (row.from === "stderr" ? "stderr" : "no message")));
    if (folded) method.append(element("span", { className: "times", title: "Enter unfolds" }, `×${rows.length}`));
    const content = element("span", { className: "content" });
    if (row.wrong) {
      line.classList.add(row.violates ? "is-wrong" : "is-unknown");
      content.append(element("span", { className: "mark", title: row.wrong.map((each) => each.join(": ")).join("\n") }, row.wrong[0][0]));
    }
    content.append(text.slice(0, 400));
    const last = rows[rows.length - 1];
    const latency = row.latency !== undefined ? duration(row.latency) : folded && last.at > row.at ? duration(last.at - row.at) : "";
    line.append(
      element("span", { className: "time" }, clock(row.at)),
      element("span", { className: "arrow", title: FROM[row.from] }, ARROWS[row.from]),
      method,
      content,
      element("span", { className: row.latency > 1000 ? "right slow" : "right" }, latency),
      element("span", { className: "right size" }, row.kind === "event" ? "" : bytes(rows.reduce((sum, each) => sum + each.size, 0))),
    );
    line.setAttribute("aria-label", `${FROM[row.from]}, ${row.kind} ${row.method ?? ""}${folded ? `, ${rows.length} deltas` : ""}: ${text.slice(0, 120)}`);
    return line;
  }

  #clicked(event) {
    const line = event.target.closest(".line");
    if (!line) return;
    const index = Number(line.dataset.index);
    this.select(this.shown.lines[index].rows[0].position);
    if (event.target.closest(".times")) this.toggle();
  }

  #scrolled() {
    const left = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight;
    const following = left < HEIGHT;
    if (following !== this.following) {
      this.following = following;
      this.onFollow(following);
    }
    this.draw();
  }

  follow() {
    this.following = true;
    this.onFollow(true);
    this.box.scrollTop = this.box.scrollHeight;
  }

  select(position) {
    this.selected = position;
    const index = this.shown.indexOf(position);
    if (index >= 0) this.reveal(index);
    this.draw();
    this.onSelect(this.shown.session.rows[position]);
  }

  reveal(index) {
    const top = index * HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top - HEIGHT;
    else if (top + HEIGHT > this.box.scrollTop + this.box.clientHeight) {
      this.box.scrollTop = top + 2 * HEIGHT - this.box.clientHeight;
    }
  }

  // By so many lines; Infinity for the ends.
  move(by) {
    const { lines } = this.shown;
    if (!lines.length) return;
    const from = this.shown.indexOf(this.selected);
    const start = from >= 0 ? from : by > 0 ? Math.floor(this.box.scrollTop / HEIGHT) - 1 : Math.ceil(this.box.scrollTop / HEIGHT);
    const index = Math.min(lines.length - 1, Math.max(0, start + by));
    this.select(lines[index].rows[0].position);
    if (by === Infinity) this.follow();
  }

  get page() {
    return Math.max(1, Math.floor(this.box.clientHeight / HEIGHT) - 1);
  }

  toggle() {
    const index = this.shown.indexOf(this.selected);
    if (index < 0) return;
    this.shown.toggle(index);
    this.show(this.shown);
  }
}
