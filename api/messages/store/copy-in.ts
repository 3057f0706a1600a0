/** COPY … FROM STDIN over a `pg` connection, which supports the protocol messages but has no statement for them. */
import type pg from 'pg'

/** A COPY statement and its data. */
export type CopyData = { statement: string; data: Uint8Array }

/** Larger pieces would permanently grow the buffer of the driver's serializer. */
const CHUNK_BYTES = 64 * 1024

/** The part of the driver's connection that COPY uses. */
type CopyConnection = {
  query(text: string): void
  sendCopyFromChunk(chunk: Uint8Array): void
  endCopyFrom(): void
  stream: { cork?: () => void; uncork?: () => void }
}

/**
 * The data follow the statements without waiting for a CopyInResponse: the server reads the data of each COPY in turn, and drops
 * everything after a failed statement (protocol documentation, sections 55.2.3 and 55.2.6).
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
    // Statement and data are sent in one write: each write wakes the server.
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
    // ReadyForQuery follows an error too; the first result wins.
    this.#done = undefined
  }
}
