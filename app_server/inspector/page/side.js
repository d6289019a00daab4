// What waits for an answer, and the server's stderr.

import { clock, duration, element, short, summary } from "./format.js";

const MOST_LINES = 2000;

export class Waiting {
  constructor(box, { onJump }) {
    this.box = box;
    this.onJump = onJump;
  }

  // `now`: milliseconds since the session began.
  draw(session, now) {
    if (this.box.hidden) return;
    if (!session.waiting.size) {
      this.box.replaceChildren(element("p", { className: "empty" }, session.ended ? "Every request was answered." : "No request waits for its answer."));
      return;
    }
    const lines = [...session.waiting.values()].map((row) => {
      const line = element("button", { className: `wait from-${row.from}` },
        element("span", { className: "arrow" }, row.from === "client" ? "→" : "←"),
        element("span", { className: "method" }, row.method),
        element("span", { className: "content" }, summary(row).slice(0, 160)),
        element("span", { className: "quiet" }, row.thread ? `thread ${short(row.thread)}` : ""),
        element("span", { className: "right waits" }, session.ended ? "never" : duration(Math.max(0, now - row.at))),
      );
      line.addEventListener("click", () => this.onJump(row));
      return line;
    });
    this.box.replaceChildren(...lines);
  }
}

export class Stderr {
  constructor(box) {
    this.box = box;
    this.drawn = 0;
  }

  reset() {
    this.drawn = 0;
    this.box.replaceChildren();
  }

  draw(session) {
    if (this.box.hidden) return;
    const lines = session.stderr;
    if (!lines.length) {
      this.box.replaceChildren(element("p", { className: "empty" }, "The server wrote nothing to stderr."));
      return;
    }
    if (!this.drawn) this.box.replaceChildren();
    const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 30;
    for (const row of lines.slice(Math.max(this.drawn, lines.length - MOST_LINES))) {
      this.box.append(element("div", { className: "log" }, element("span", { className: "time" }, clock(row.at)), element("span", {}, row.text)));
    }
    this.drawn = lines.length;
    while (this.box.childElementCount > MOST_LINES) this.box.firstElementChild.remove();
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
  }
}
