/** COPY … FROM STDIN over a `pg` connection, which knows the protocol messages but brings no statement for them. */
import type pg from 'pg'

/** A COPY statement and what it reads. */
export type CopyData = { statement: string; data: Uint8Array }

/** Larger pieces would make the driver's serialiser grow its buffer for good. */
const CHUNK_BYTES = 64 * 1024

/** The part of the driver's connection that COPY uses. */
type CopyConnection = {
  query(text: string): void
  sendCopyFromChunk(chunk: Uint8Array): void
  endCopyFrom(): void
  stream: { cork?: () => void; uncork?: () => void }
}

/**
 * Runs `before`, the copies and `after` as one query with the data behind it: a whole transaction in one round trip.
 * Nothing waits for a CopyInResponse: the server reads the data of each COPY when it comes to it, and drops what
 * follows a statement that failed (protocol documentation, sections 55.2.3 and 55.2.6).
 */
export function runWithCopies(
  client: pg.ClientBase,
  before: readonly string[],
  copies: readonly CopyData[],
  after: readonly string[],
): Promise<void> {
  const text = [...before, ...copies.map((copy) => copy.statement), ...after].join(';\n')
  return new Promise((resolve, reject) => {
    client.query(
      new CopyQuery(
        text,
        copies.map((copy) => copy.data),
        (error) => (error === undefined ? resolve() : reject(error)),
      ),
    )
  })
}

class CopyQuery implements pg.Submittable {
  readonly #text: string
  readonly #data: readonly Uint8Array[]
  #done: ((error?: Error) => void) | undefined

  constructor(text: string, data: readonly Uint8Array[], done: (error?: Error) => void) {
    this.#text = text
    this.#data = data
    this.#done = done
  }

  submit(connection: unknown): void {
    const copy = connection as CopyConnection
    // Statement and data leave in one write: each write to the socket wakes the server.
    copy.stream.cork?.()
    copy.query(this.#text)
    for (const data of this.#data) {
      for (let start = 0; start < data.length; start += CHUNK_BYTES) {
        copy.sendCopyFromChunk(data.subarray(start, start + CHUNK_BYTES))
      }
      copy.endCopyFrom()
    }
    copy.stream.uncork?.()
  }

  handleError(error: Error): void {
    this.#settle(error)
  }

  handleReadyForQuery(): void {
    this.#settle()
  }

  handleCopyInResponse(): void {}

  handleCommandComplete(): void {}

  handleEmptyQuery(): void {}

  #settle(error?: Error): void {
    this.#done?.(error)
    // After an error ReadyForQuery comes too; the first word counts.
    this.#done = undefined
  }
}
