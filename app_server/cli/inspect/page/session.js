// One session as the page knows it: its title, and what the stream told last.

export class Session {
  constructor(number, title) {
    this.number = number;
    this.title = title;
    this.news = { at: 0, messages: { client: 0, server: 0 }, sizes: { client: 0, server: 0 }, violations: 0, stderr: 0, waiting: 0, questions: [], total: 0, first: 0, matches: 0, lost: 0, ended: false, ready: false };
  }
}

export const NO_FILTER = { text: "", direction: "", method: "", thread: "", turn: "", only: "", fold: true };

export const isFiltering = (filter) => Object.entries(NO_FILTER).some(([name, none]) => name !== "fold" && filter[name] !== none);
