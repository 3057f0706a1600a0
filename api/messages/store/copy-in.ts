/** COPY … FROM STDIN over a `pg` connection, which knows the protocol messages but brings no statement for them. */
import type pg from 'pg'

/** Larger pieces would make the driver's serialiser grow its buffer for good. */
const CHUNK_BYTES = 64 * 1024

/** The part of the driver's connection that COPY uses. */
type CopyConnection = {
  query(text: string): void
  sendCopyFromChunk(chunk: Uint8Array): void
  endCopyFrom(): void
}

/**
 * Sends the data with the statement and resolves when PostgreSQL has taken all of it. Nothing waits for the
 * CopyInResponse: where COPY is refused, PostgreSQL drops the data that follow (protocol documentation, section 55.2.6).
 */
export function copyIn(client: pg.ClientBase, statement: string, data: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    client.query(new CopyIn(statement, data, (error) => (error === undefined ? resolve() : reject(error))))
  })
}

class CopyIn implements pg.Submittable {
  readonly #statement: string
  readonly #data: Uint8Array
  #done: ((error?: Error) => void) | undefined

  constructor(statement: string, data: Uint8Array, done: (error?: Error) => void) {
    this.#statement = statement
    this.#data = data
    this.#done = done
  }

  submit(connection: unknown): void {
    const copy = connection as CopyConnection
    copy.query(this.#statement)
    for (let start = 0; start < this.#data.length; start += CHUNK_BYTES) {
      copy.sendCopyFromChunk(this.#data.subarray(start, start + CHUNK_BYTES))
    }
    copy.endCopyFrom()
  }

  handleError(error: Error): void {
    this.#settle(error)
  }

  handleReadyForQuery(): void {
    this.#settle()
  }

  handleCopyInResponse(): void {}

  handleCommandComplete(): void {}

  #settle(error?: Error): void {
    this.#done?.(error)
    // After an error ReadyForQuery comes too; the first word counts.
    this.#done = undefined
  }
}
