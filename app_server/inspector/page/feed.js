// The server: streams of sessions, and what can be asked of them. Addresses are relative, so that they keep the token.

export class Feed {
  constructor(session, { onRows, onState }) {
    this.session = session;
    this.onRows = onRows;
    this.onState = onState;
    this.#connect();
  }

  #connect() {
    this.source = new EventSource(`sessions/${this.session.number}/events?after=${this.session.next}`);
    this.source.onopen = () => this.onState("live");
    this.source.onmessage = (event) => {
      const told = JSON.parse(event.data);
      if (told.end) {
        this.session.ended = true;
        this.close();
        this.onState("ended");
      } else {
        this.session.add(told.rows, told.gap);
        this.onRows();
      }
    };
    this.source.onerror = () => {
      // Its own retry would begin where it began first.
      this.source.close();
      this.onState("lost");
      this.again = setTimeout(() => this.#connect(), 1000);
    };
  }

  close() {
    clearTimeout(this.again);
    this.source.close();
  }
}

async function asked(path, options) {
  const response = await fetch(path, options);
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error ?? `the inspector answered ${response.status}`);
}

export const about = async (number) => (await asked(`sessions/${number}`)).json();
export const open = async (file) => (await asked(`sessions?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file })).json();
export const replay = async (number) => (await asked(`sessions/${number}/replay`, { method: "POST" })).json();
export const wholeText = async (number, entry) => (await asked(`sessions/${number}/entries/${entry}`)).text();
export const download = async (number, what) => (await asked(`sessions/${number}/${what}`)).blob();
