// What waits for an answer, and the server's stderr.

import { clock, duration, element, short, summary } from "./format.js";

const MOST_LINES = 2000;

export class Waiting {
  constructor(box, { onJump }) {
    this.box = box;
    this.onJump = onJump;
    this.rows = [];
  }

  show(rows) {
    this.rows = rows;
  }

  // `now`: milliseconds since the session began.
  draw(now, ended) {
    if (this.box.hidden) return;
    if (!this.rows.length) {
      this.box.replaceChildren(element("p", { className: "empty" }, ended ? "Every request was answered." : "No request waits for its answer."));
      return;
    }
    const focused = this.box.contains(document.activeElement) ? document.activeElement.dataset.n : undefined;
    const lines = this.rows.map((row) => {
      const line = element("button", { className: `wait from-${row.from}` },
        element("span", { className: "arrow" }, row.from === "client" ? "→" : "←"),
        element("span", { className: "method" }, row.method),
        element("span", { className: "content" }, summary(row).slice(0, 160)),
        element("span", { className: "quiet" }, row.thread ? `thread ${short(row.thread)}` : ""),
        element("span", { className: "right waits" }, ended ? "never" : duration(Math.max(0, now - row.at))),
      );
      line.dataset.n = row.n;
      line.addEventListener("click", () => this.onJump(row.n));
      return line;
    });
    this.box.replaceChildren(...lines);
    if (focused) this.box.querySelector(`[data-n="${focused}"]`)?.focus();
  }
}

export class Stderr {
  constructor(box) {
    this.box = box;
    this.reset();
  }

  reset() {
    this.next = 0;
    this.box.replaceChildren(element("p", { className: "empty" }, "The server wrote nothing to stderr."));
  }

  add(lines) {
    if (!lines.length) return;
    if (!this.next) this.box.replaceChildren();
    const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 30;
    for (const [n, at, text] of lines) {
      if (n < this.next) continue;
      this.box.append(element("div", { className: "log" }, element("span", { className: "time" }, clock(at)), element("span", {}, text)));
      this.next = n + 1;
    }
    while (this.box.childElementCount > MOST_LINES) this.box.firstElementChild.remove();
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
  }
}
