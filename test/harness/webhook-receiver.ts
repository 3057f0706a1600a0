/** A receiver of webhooks that counts the values that it receives, and what an exact receiver would have to notice. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

type Told = { id: string; publisher: string; created: string; payload: string }

export class WebhookReceiver implements AsyncDisposable {
  readonly told = new Set<number>()
  /** Requests, repetitions included. */
  requests = 0
  /** An id that came with another message, a message under two ids, and a message that came after a later one of its client. */
  readonly faults: string[] = []
  readonly host: string
  readonly #server: ReturnType<typeof createServer>
  readonly #isOrdered: boolean
  readonly #messages = new Map<string, string>()
  readonly #ids = new Map<string, string>()
  /** By subscription and client, the highest value. */
  readonly #highest = new Map<string, number>()

  private constructor(server: ReturnType<typeof createServer>, isOrdered: boolean) {
    this.#server = server
    this.#isOrdered = isOrdered
    this.host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  }

  /** `isOrdered`: the values of each client grow from message to message. */
  static async start({ isOrdered = false } = {}): Promise<WebhookReceiver> {
    const server = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => void chunks.push(chunk))
      request.on('end', () => {
        receiver.#take(request.url ?? '', JSON.parse(Buffer.concat(chunks).toString()) as Told)
        response.end()
      })
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const receiver = new WebhookReceiver(server, isOrdered)
    return receiver
  }

  /** Distinct ids. */
  get messages(): number {
    return this.#messages.size
  }

  #take(path: string, { id, publisher, created, payload }: Told): void {
    this.requests++
    const message = `${path} ${publisher} ${created} ${payload}`
    if ((this.#messages.get(id) ?? message) !== message) this.faults.push(`${id} is ${message}, and another message`)
    if ((this.#ids.get(message) ?? id) !== id) this.faults.push(`${message} has another id: ${id}`)
    const isNew = !this.#messages.has(id)
    this.#messages.set(id, message)
    this.#ids.set(message, id)
    for (const match of payload.matchAll(/"v":(\d+)/g)) {
      const value = Number(match[1])
      this.told.add(value)
      const client = `${path} ${publisher}`
      const highest = this.#highest.get(client) ?? -1
      if (this.#isOrdered && isNew && value <= highest) this.faults.push(`${value} of ${client} after ${highest}`)
      this.#highest.set(client, Math.max(highest, value))
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
