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
    this.selected = -1; // the number of a message
    this.index = -1; // the line that shows it
    this.following = true;
    this.questions = new Set(); // numbers of what waits for an answer
    box.addEventListener("scroll", () => this.#scrolled());
    box.addEventListener("click", (event) => this.#clicked(event));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  async show(lines) {
    this.lines = lines;
    this.pool.forEach((line) => line.remove());
    this.pool.clear();
    this.index = -1;
    this.refresh();
    if (this.selected < 0) return;
    const index = await lines.view.placeOf(this.selected).catch(() => -1);
    if (this.lines !== lines || this.index >= 0) return; // something else was chosen meanwhile
    this.index = index;
    if (index >= 0 && !this.following) this.reveal(index);
    this.draw();
  }

  // After lines were added, or have changed.
  refresh() {
    this.#keepPlace();
    this.space.style.height = `${(this.lines.total - this.lines.first) * HEIGHT}px`;
    if (this.following) this.box.scrollTop = this.box.scrollHeight;
    this.draw();
  }

  // What is looked at stays where it is when lines before it are dropped.
  #keepPlace() {
    const dropped = this.lines.first - (this.begin ?? this.lines.first);
    this.begin = this.lines.first;
    if (!dropped) return;
    this.pool.forEach((line) => line.remove());
    this.pool.clear();
    if (!this.following) this.box.scrollTop -= dropped * HEIGHT;
  }

  draw() {
    if (!this.lines || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.#draw();
    });
  }

  #draw() {
    const { first, total } = this.lines;
    const from = first + Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - MORE);
    const to = Math.min(total, first + Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT) + MORE);
    for (const [index, line] of this.pool) {
      if (index < from || index >= to) {
        line.remove();
        this.pool.delete(index);
      }
    }
    for (let index = from; index < to; index += 1) {
      const line = this.lines.at(index);
      const drawn = this.pool.get(index);
      const isSelected = index === this.index;
      const waits = Boolean(line) && this.questions.has(line.n);
      const state = line ? `${line.n}/${line.last}/${line.times}/${isSelected}/${waits}/${total === index + 1}` : "…";
      if (drawn && (drawn.dataset.state === state || !line)) continue;
      const made = line?.row ? this.#line(line, index, isSelected, waits) : this.#empty(line, index);
      made.dataset.state = state;
      if (drawn) drawn.replaceWith(made);
      else this.space.append(made);
      this.pool.set(index, made);
    }
    const chosen = this.pool.get(this.index);
    if (chosen) this.box.setAttribute("aria-activedescendant", chosen.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  #placed(className, index) {
    const line = element("div", { className, role: "option", id: `line-${index}` });
    line.style.transform = `translateY(${(index - this.lines.first) * HEIGHT}px)`;
    line.dataset.index = index;
    line.setAttribute("aria-setsize", this.lines.total);
    line.setAttribute("aria-posinset", index + 1);
    line.setAttribute("aria-selected", String(index === this.index));
    return line;
  }

  // A line that is on its way, or one whose messages are not kept any more.
  #empty(line, index) {
    const made = this.#placed("line is-empty", index);
    made.append(element("span", {}), element("span", {}), element("span", { className: "method" }, line ? "not kept" : "…"));
    made.setAttribute("aria-label", line ? "not kept any more" : "is being loaded");
    return made;
  }

  #line({ n, row, times, size, until, more, part }, index, isSelected, waits) {
    const folded = times > 1;
    const line = this.#placed(`line from-${row.from} kind-${row.kind}`, index);
    line.dataset.n = n;
    line.classList.toggle("is-delta", row.phase === "delta");
    line.classList.toggle("is-part", Boolean(part));
    line.classList.toggle("is-waiting", waits);
    const texts = [row, ...(more ?? []).map((text) => ({ ...row, text, summary: undefined }))];
    const text = texts.map((each) => summary(each)).join("");
    const method = element("span", { className: "method" }, element("span", {}, row.method ?? (row.from === "stderr" ? "stderr" : "no message")));
    if (folded) method.append(element("span", { className: "times", title: "Enter unfolds" }, `×${times}`));
    const content = element("span", { className: "content" });
    if (row.wrong) {
      line.classList.add(row.wrong.some(([rule]) => rule !== "unknown-method") ? "is-wrong" : "is-unknown");
      content.append(element("span", { className: "mark", title: row.wrong.map((each) => each.join(": ")).join("\n") }, row.wrong[0][0]));
    }
    if (waits) content.append(element("span", { className: "mark asks" }, "waits for an answer"));
    content.append(text.slice(0, 400));
    const latency = row.latency !== undefined ? duration(row.latency) : folded && until > row.at ? duration(until - row.at) : "";
    line.append(
      element("span", { className: "time" }, clock(row.at)),
      element("span", { className: "arrow", title: FROM[row.from] }, ARROWS[row.from]),
      method,
      content,
      element("span", { className: row.latency > 1000 ? "right latency slow" : "right latency" }, latency),
      element("span", { className: "right size" }, row.kind === "event" ? "" : bytes(size)),
    );
    const wrong = row.wrong ? `, breaks ${row.wrong[0][0]}` : "";
    line.setAttribute("aria-label", `${FROM[row.from]}, ${row.kind} ${row.method ?? ""}${folded ? `, ${times} deltas` : ""}${waits ? ", waits for an answer" : ""}${wrong}: ${text.slice(0, 120)}`);
    return line;
  }

  #clicked(event) {
    const line = event.target.closest(".line");
    if (!line) return;
    this.selectLine(Number(line.dataset.index));
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

  // Choose a line, once it is here.
  async selectLine(index) {
    this.index = index;
    this.reveal(index);
    this.draw();
    const { lines } = this;
    const line = await lines.whenHere(index);
    if (!line?.row || this.index !== index || this.lines !== lines) return;
    this.selected = line.n;
    this.onSelect(line.row);
  }

  reveal(index) {
    const top = (index - this.lines.first) * HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top - HEIGHT;
    else if (top + HEIGHT > this.box.scrollTop + this.box.clientHeight) {
      this.box.scrollTop = top + 2 * HEIGHT - this.box.clientHeight;
    }
  }

  // By so many lines; Infinity for the ends.
  move(by) {
    const { first, total } = this.lines;
    if (total <= first) return;
    const top = first + Math.floor(this.box.scrollTop / HEIGHT);
    const start = this.index >= first ? this.index : by > 0 ? top - 1 : top + this.page;
    const index = Math.min(total - 1, Math.max(first, start + by));
    this.selectLine(index);
    if (by === Infinity) this.follow();
  }

  get page() {
    return Math.max(1, Math.floor(this.box.clientHeight / HEIGHT) - 1);
  }

  async toggle() {
    if (this.index < 0) return;
    const index = await this.lines.view.toggle(this.index);
    if (index < 0) return;
    this.lines.forget();
    this.selectLine(index);
  }
}
