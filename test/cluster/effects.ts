/**
 * What messages should cause, whatever is killed: the guest of a task gets the values of a channel in batches and publishes each of them to another
 * channel, once. A webhook receiver gets the values of a slower channel, at least once, in order and under one id each.
 */
import { expect } from 'vitest'
import { repeatedIn, stored } from '../faults/losses.ts'
import type { Domain } from '../faults/losses.ts'
import type { Target } from '../faults/loss-writers.ts'
import { relayModule } from '../harness/relay-guest.ts'
import { until } from '../harness/until.ts'
import type { WebhookReceiver } from '../harness/webhook-receiver.ts'
import type { SupervisedProgram } from './programs.ts'

const BATCH = 50
/** A delivery of a node that was killed is taken up when its lease of two minutes has ended; runs as the results of `traffic.ts`. */
const EFFECTS_DEADLINE_MS = 240_000

type Call = SupervisedProgram['call']

export class Effects {
  readonly #source: Target
  readonly #published: Target
  readonly #notifying: Target
  readonly #receiver: WebhookReceiver
  /** Values that had all of their effects at the last check. */
  count = 0

  private constructor({
    source,
    published,
    notifying,
    receiver,
  }: {
    source: Target
    published: Target
    notifying: Target
    receiver: WebhookReceiver
  }) {
    this.#source = source
    this.#notifying = notifying
    this.#published = published
    this.#receiver = receiver
  }

  /** Of the messages of `source` and, for the webhook, `notifying`, from now on. */
  static async begin(
    { domain, api, manager }: { domain: Domain; api: Call; manager: Call },
    {
      source,
      published,
      notifying,
      receiver,
    }: { source: Target; published: Target; notifying: Target; receiver: WebhookReceiver },
  ): Promise<Effects> {
    const { authorization, id: domainId } = domain
    const channelOf = ({ path }: Target) => path.split('/').at(-1) ?? ''
    const task = await manager('POST', '/tasks', {
      body: {
        name: 'relay',
        domain_id: domainId,
        trigger: { channel_id: channelOf(source), batch: BATCH, order: 'client' },
        grants: [{ kind: 'publish', channel_id: channelOf(published) }],
        // The test kills more workers than a message meets otherwise.
        retry: { max_attempts: 10, backoff: '100ms' },
      },
      authorization,
    })
    expect(task.status, task.text).toBe(201)
    const file = new FormData()
    file.append('file', new Blob([new Uint8Array(await relayModule())]), 'relay.wasm')
    const path = `/tasks/${task.json<{ id: string }>().id}/upload`
    const uploaded = await manager('PUT', path, { body: file, authorization })
    expect(uploaded.status, uploaded.text).toBe(200)
    const body = { topic: channelOf(notifying), contact: `http://${receiver.host}/` }
    const subscription = await api('POST', '/subscriptions', { body, authorization })
    expect(subscription.status, subscription.text).toBe(201)
    return new Effects({ source, published, notifying, receiver })
  }

  /** Waits until every stored value has its effects, as long as it may take; nothing is published meanwhile. */
  async compare(call: Call): Promise<{ missing: number[]; untold: number[]; repeated: number[]; faults: string[] }> {
    const { values: wanted } = await stored(call, this.#source)
    const { values: notifying } = await stored(call, this.#notifying)
    let published: number[] = []
    const missing = () => {
      const known = new Set(published)
      return wanted.filter((value) => !known.has(value))
    }
    const untold = () => notifying.filter((value) => !this.#receiver.told.has(value))
    const isWhole = async () => {
      ;({ values: published } = await stored(call, this.#published))
      return missing().length === 0 && untold().length === 0
    }
    await until(isWhole, 'every message has its effects', EFFECTS_DEADLINE_MS).catch(() => undefined)
    this.count = wanted.length
    const { messages, faults } = this.#receiver
    const extra = messages === notifying.length ? [] : [`the receiver got ${messages} ids`]
    return { missing: missing(), untold: untold(), repeated: repeatedIn(published), faults: [...faults, ...extra] }
  }
}
