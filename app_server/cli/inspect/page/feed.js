// The inspector's side: what can be asked of a session. Addresses are relative, so that they keep the token.

async function asked(path, options) {
  const response = await fetch(path, options);
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `the inspector answered ${response.status}`);
}

const read = async (path, options) => (await asked(path, options)).json();
const query = (values) => new URLSearchParams(values).toString();

export const about = (number) => read(`sessions/${number}`);
export const open = (file) => read(`sessions?${query({ name: file.name })}`, { method: "POST", body: file });
export const replay = (number) => read(`sessions/${number}/replay`, { method: "POST" });
export const entry = (number, n) => read(`sessions/${number}/entries/${n}`);
export const entryTest = async (number, n) => (await asked(`sessions/${number}/entries/${n}/test`)).text();
export const choices = (number) => read(`sessions/${number}/choices`);
export const waiting = (number) => read(`sessions/${number}/waiting`);
export const figures = (number) => read(`sessions/${number}/figures`);
export const stderr = (number, after) => read(`sessions/${number}/stderr?${query({ after })}`);
export const turn = (number, named) => read(`sessions/${number}/turn?${query(named)}`);
export const violation = (number, from) => read(`sessions/${number}/violation?${query(from)}`);
export const addressOf = (number, what) => `sessions/${number}/${what}`;

// A list of a session under a filter, and the stream that says how it grows.
export class View {
  static async open(number, filter) {
    const { view } = await read(`sessions/${number}/views`, { method: "POST", body: JSON.stringify(filter) });
    return new View(number, view);
  }

  constructor(number, view) {
    this.place = `sessions/${number}/views/${view}`;
  }

  lines(from, count) {
    return read(`${this.place}/lines?${query({ from, count })}`);
  }

  async placeOf(n) {
    return (await read(`${this.place}/place?${query({ entry: n })}`)).line;
  }

  async toggle(line) {
    return (await read(`${this.place}/toggle?${query({ line })}`, { method: "POST" })).line;
  }

  follow({ onNews, onLost, onOver }) {
    this.source = new EventSource(`${this.place}/events`);
    this.source.onmessage = (event) => {
      const told = JSON.parse(event.data);
      if (told.over) {
        this.close();
        onOver();
      } else onNews(told);
    };
    this.source.onerror = () => onLost();
  }

  close() {
    this.source?.close();
  }
}
