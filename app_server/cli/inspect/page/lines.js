// The lines of a view that are here: pages of them, those that were looked at last. What is not here is asked for.

const PAGE = 100;
const MOST_PAGES = 24;

export class Lines {
  constructor(view, onArrived) {
    this.view = view;
    this.onArrived = onArrived;
    this.pages = new Map(); // number → { lines, stale, moved: its lines are others now, asked: what is waited for }
    this.first = 0; // lines before it are not kept any more
    this.total = 0;
  }

  // A line by its place, or undefined until it is here.
  at(index) {
    const number = Math.floor(index / PAGE);
    const page = this.pages.get(number);
    if (!page || page.stale) this.#ask(number, page);
    return page?.lines.get(index);
  }

  // A line by its place, once it is here.
  async whenHere(index) {
    const number = Math.floor(index / PAGE);
    for (let tries = 0; tries < 3; tries += 1) {
      const line = this.at(index);
      const page = this.pages.get(number);
      if (line && !page.moved) return line;
      await page?.asked;
    }
    return undefined;
  }

  // After the stream has said how many there are: the last line may have grown, and others follow it.
  grow(first, total) {
    const from = Math.floor(Math.max(0, Math.min(this.total, total) - 1) / PAGE);
    for (const [number, page] of this.pages) if (number >= from) page.stale = true;
    this.first = first;
    this.total = total;
  }

  // After a line was unfolded or folded: the places of those behind it have changed.
  forget() {
    for (const page of this.pages.values()) page.stale = page.moved = true;
  }

  #ask(number, page) {
    if (page?.asked) return;
    const kept = page ?? { lines: new Map(), stale: false, moved: false, asked: undefined };
    this.pages.delete(number);
    this.pages.set(number, kept); // the newest is last
    for (const old of this.pages.keys()) {
      if (this.pages.size <= MOST_PAGES) break;
      this.pages.delete(old);
    }
    kept.stale = false;
    kept.asked = this.view.lines(number * PAGE, PAGE).then((told) => {
      kept.lines = new Map(told.lines.map((line) => [line.line, line]));
      kept.asked = undefined;
      kept.moved = false;
      this.onArrived();
    }, () => {
      kept.asked = undefined; // the stream says whether the inspector is there
    });
  }
}
