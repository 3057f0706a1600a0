/** A program that takes the messages of a channel by a named consumer, whatever is killed: each is acknowledged, and none is delivered after that. */
import type { Domain } from '../faults/losses.ts'
import type { Target } from '../faults/loss-writers.ts'
import { until } from '../harness/until.ts'
import type { SupervisedProgram } from './programs.ts'

const NAME = 'values'
const CALLERS = 2
const LIMIT = 50
/** Callers forget as many answers: they ended before they acknowledged. */
const FORGOTTEN = 0.05
const ACK_WAIT = '2s'
const AFTER_FAILURE_MS = 100
const DEADLINE_MS = 60_000

type Message = { position: string; payload: readonly { v?: number }[] }

export class ConsumerClient {
  readonly #nodes: readonly SupervisedProgram[]
  readonly #path: string
  readonly #authorization: string
  /** Values, with the time (`performance.now()`) at which the answer to their acknowledgement came. */
  readonly #acknowledged = new Map<number, number>()
  readonly #faults: string[] = []
  readonly #loops: Promise<void>[]
  #isOver = false

  private constructor(nodes: readonly SupervisedProgram[], { id, authorization }: Domain) {
    this.#nodes = nodes
    this.#path = `/${id}/consumers/${NAME}`
    this.#authorization = authorization
    this.#loops = Array.from({ length: CALLERS }, (_, caller) => this.#take(caller))
  }

  /** Of all messages of the source. */
  static async begin(nodes: readonly SupervisedProgram[], domain: Domain, source: Target): Promise<ConsumerClient> {
    const channel = source.path.split('/').at(-1)
    const body = { name: NAME, channels: [channel], from: 'earliest', ack_wait: ACK_WAIT, max_deliver: 1000 }
    await domain.create(`/${domain.id}/consumers`, body)
    return new ConsumerClient(nodes, domain)
  }

  get count(): number {
    return this.#acknowledged.size
  }

  /** Waits until each of the stored values was acknowledged, as long as it may take; nothing is published meanwhile. */
  async compare(wanted: readonly number[]): Promise<{ missing: number[]; faults: string[] }> {
    const missing = () => wanted.filter((value) => !this.#acknowledged.has(value))
    await until(() => missing().length === 0, 'every message is acknowledged', DEADLINE_MS).catch(() => undefined)
    return { missing: missing(), faults: [...this.#faults] }
  }

  async end(): Promise<void> {
    this.#isOver = true
    await Promise.all(this.#loops)
  }

  async #take(caller: number): Promise<void> {
    for (let turn = caller; !this.#isOver; turn++) {
      const askedMs = performance.now()
      const answer = await this.#call(turn, 'GET', `/messages?limit=${LIMIT}&wait=2s`)
      if (answer?.status !== 200) {
        await pause(AFTER_FAILURE_MS)
        continue
      }
      const { messages } = answer.json<{ messages: Message[] }>()
      for (const value of messages.flatMap(valuesOf))
        if ((this.#acknowledged.get(value) ?? Infinity) < askedMs)
          this.#faults.push(`${value} was delivered after its acknowledgement`)
      if (messages.length > 0 && Math.random() >= FORGOTTEN) await this.#acknowledge(turn, messages)
    }
  }

  /** Until it is answered, at any node. */
  async #acknowledge(turn: number, messages: readonly Message[]): Promise<void> {
    const positions = messages.map(({ position }) => position)
    for (let attempt = turn; !this.#isOver; attempt++) {
      const answer = await this.#call(attempt, 'POST', '/ack', { positions })
      if (answer?.status === 200) {
        for (const value of messages.flatMap(valuesOf)) this.#acknowledged.set(value, performance.now())
        return
      }
      if (answer !== undefined && answer.status < 500) this.#faults.push(`${answer.status} ${answer.text}`)
      await pause(AFTER_FAILURE_MS)
    }
  }

  async #call(turn: number, method: string, path: string, body?: object) {
    const node = this.#nodes[turn % this.#nodes.length] as SupervisedProgram
    const options = { authorization: this.#authorization, ...(body === undefined ? {} : { body }) }
    return await node.call(method, `${this.#path}${path}`, options).catch(() => undefined)
  }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

const valuesOf = ({ payload }: Message): number[] => payload.flatMap(({ v }) => (v === undefined ? [] : [v]))
