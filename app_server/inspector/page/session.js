// One session: its rows, what they say of threads, turns and open requests, and which of them pass the filters.

export class Session {
  constructor(number, title) {
    this.number = number;
    this.title = title;
    this.rows = [];
    this.at = new Map(); // number of an entry → its position in `rows`
    this.threads = new Map(); // id → Map of its turns: id → { first, started, ended, rows }
    this.methods = new Map(); // name → { count, size, latencies }
    this.waiting = new Map(); // number of a request → row
    this.answers = new Map(); // number of a request → number of its answer
    this.wrong = []; // positions
    this.stderr = [];
    this.sizes = { client: 0, server: 0 };
    this.messages = { client: 0, server: 0 };
    this.lost = 0;
    this.next = 0;
    this.ended = false;
  }

  add(rows, gap) {
    this.lost += gap;
    if (gap) {
      this.put({ n: -1, at: rows[0]?.at ?? 0, from: "inspector", form: "event", kind: "event", method: "gap", size: 0,
        text: JSON.stringify({ event: "told", message: `${gap} older messages are not kept any more` }) });
    }
    for (const row of rows) {
      this.next = row.n + 1;
      this.put(row);
    }
  }

  put(row) {
    row.position = this.rows.length;
    this.rows.push(row);
    if (row.n >= 0) this.at.set(row.n, row.position);
    row.violates = Boolean(row.wrong?.some(([rule]) => rule !== "unknown-method"));
    if (row.violates) this.wrong.push(row.position);
    if (row.from === "stderr") this.stderr.push(row);
    if (row.from === "client" || row.from === "server") {
      this.messages[row.from] += 1;
      this.sizes[row.from] += row.size;
    }
    if (row.kind === "request") this.waiting.set(row.n, row);
    if (row.request !== undefined) {
      this.waiting.delete(row.request);
      this.answers.set(row.request, row.n);
    }
    if (row.withdraws !== undefined && this.waiting.delete(row.withdraws)) this.answers.set(row.withdraws, row.n);
    if (row.method && row.kind !== "event") this.#method(row);
    if (row.thread) this.#turn(row);
  }

  #method(row) {
    let found = this.methods.get(row.method);
    if (!found) this.methods.set(row.method, (found = { count: 0, size: 0, latencies: [] }));
    if (row.request === undefined) found.count += 1;
    found.size += row.size;
    if (row.latency !== undefined) found.latencies.push(row.latency);
  }

  #turn(row) {
    let turns = this.threads.get(row.thread);
    if (!turns) this.threads.set(row.thread, (turns = new Map()));
    if (!row.turn) return;
    let turn = turns.get(row.turn);
    if (!turn) turns.set(row.turn, (turn = { thread: row.thread, id: row.turn, first: row.at, ended: undefined, rows: [] }));
    turn.rows.push(row);
    if (row.phase === "turn starts") turn.started = row.at;
    if (row.phase === "turn ends") turn.ended = row.at;
  }

  row(number) {
    return this.rows[this.at.get(number)];
  }

  turn(thread, id) {
    return this.threads.get(thread)?.get(id);
  }

  lastTurn() {
    let last;
    for (const turns of this.threads.values()) {
      for (const turn of turns.values()) if (!last || turn.first > last.first) last = turn;
    }
    return last;
  }

  // The other side of a request or an answer.
  partner(row) {
    const number = row.request ?? this.answers.get(row.n);
    return number === undefined ? undefined : this.row(number);
  }
}

export const NO_FILTER = { text: "", direction: "", method: "", thread: "", turn: "", wrong: false, fold: true };

export const isFiltering = (filter) =>
  Boolean(filter.text || filter.direction || filter.method || filter.thread || filter.turn || filter.wrong);

export function passes(row, filter) {
  if (filter.direction && row.from !== filter.direction) return false;
  if (filter.method && !(row.method ?? "").toLowerCase().includes(filter.method)) return false;
  if (filter.thread && row.thread !== filter.thread) return false;
  if (filter.turn && row.turn !== filter.turn) return false;
  if (filter.wrong && !row.violates) return false;
  if (filter.text && !row.text.toLowerCase().includes(filter.text)) return false;
  return true;
}

// What the list shows: lines, each of a row, or of deltas of one item that follow one another.
export class Shown {
  constructor(session, filter) {
    this.session = session;
    this.filter = { ...filter, text: filter.text.toLowerCase(), method: filter.method.toLowerCase() };
    this.lines = [];
    this.matches = 0;
    this.unfolded = new Set();
    this.seen = 0;
    this.update();
  }

  update() {
    const { rows } = this.session;
    for (; this.seen < rows.length; this.seen += 1) {
      const row = rows[this.seen];
      if (row.from === "stderr" && !this.filter.text) continue;
      if (!passes(row, this.filter)) continue;
      this.matches += 1;
      const last = this.lines[this.lines.length - 1];
      if (last && this.filter.fold && folds(last, row) && !this.unfolded.has(last.rows[0].n)) last.rows.push(row);
      else this.lines.push({ rows: [row] });
    }
  }

  toggle(index) {
    const line = this.lines[index];
    const first = line.rows[0];
    if (line.rows.length > 1) {
      this.unfolded.add(first.n);
      this.lines.splice(index, 1, ...line.rows.map((row) => ({ rows: [row], of: first.n })));
    } else if (line.of !== undefined) {
      this.unfolded.delete(line.of);
      const start = this.lines.findIndex((each) => each.of === line.of);
      const rest = this.lines.filter((each) => each.of === line.of);
      this.lines.splice(start, rest.length, { rows: rest.flatMap((each) => each.rows) });
      return start;
    }
    return index;
  }

  indexOf(position) {
    let low = 0;
    let high = this.lines.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const { rows } = this.lines[middle];
      if (rows[rows.length - 1].position < position) low = middle + 1;
      else if (rows[0].position > position) high = middle - 1;
      else return middle;
    }
    return -1;
  }
}

function folds(line, row) {
  const last = line.rows[line.rows.length - 1];
  return (
    row.phase === "delta" && last.phase === "delta" && !row.wrong && !last.wrong &&
    last.item === row.item && last.method === row.method && last.thread === row.thread
  );
}
