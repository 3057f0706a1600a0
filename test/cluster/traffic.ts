/**
 * What continues while something is killed: devices that write on every protocol, invocations of a task whose results are published
 * to a channel, messages with effects, messages that a named consumer
 * takes, devices that become what users want and carry out commands, and clients that are disabled. All of it can be paused, to compare what was acknowledged with what is there.
 */
import { randomInt } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { DeviceFleet } from '../faults/device-fleet.ts'
import { compareStored, repeatedIn, setUpDomain, setUpWriters, stored } from '../faults/losses.ts'
import type { Domain, Running } from '../faults/losses.ts'
import type { Target } from '../faults/loss-writers.ts'
import { until } from '../harness/until.ts'
import type { WebhookReceiver } from '../harness/webhook-receiver.ts'
import type { Answer } from '../harness/whole.ts'
import { ConsumerClient } from './consumer.ts'
import { Effects } from './effects.ts'
import type { Programs, SupervisedProgram } from './programs.ts'

const WRITERS_PER_KIND = 2
const INVOKERS = 4
/** Between two actions of one loop: the suite is about faults, not about load. */
const PAUSE_MS = 50
const AFTER_FAILURE_MS = 100
const REVOCATION_PAUSE_MS = 500
/** A contact gets 30 notifications per minute. */
const NOTIFYING_PAUSE_MS = 2200
/** A change is in force on every node within a second; twice that is left for a busy machine. */
const IN_FORCE_MS = 2000
const ANSWER_DEADLINE_MS = 15_000
const SETTLE_DEADLINE_MS = 60_000
/**
 * A result is published when it is due by the clock of the primary. After a failover to a server whose clock is two minutes behind, it is due
 * two minutes later; one that was being published is due again 30 s after that.
 */
const RESULTS_DEADLINE_MS = 240_000
/** An action that takes longer is shown among the attempts of a pause. */
const SLOW_MS = 500
const MODULE = join(import.meta.dirname, '../../examples/add/add.wasm')

/** What one loop tried. Times are milliseconds of `performance.now()`. */
type Attempt = { readonly fromMs: number; readonly toMs: number; readonly node: string; readonly outcome: string }

/** What one loop did: when it succeeded, and what failed or was slow. */
class Diary {
  readonly successes: number[] = []
  readonly #failures: Attempt[] = []

  /** Records an attempt that begins now; call the result with the error, or without one after a success. */
  attempt(node: () => string): (error?: unknown) => void {
    const fromMs = performance.now()
    return (error) => {
      const toMs = performance.now()
      if (error === undefined) {
        this.successes.push(toMs)
        // One that took long is part of a pause too.
        if (toMs - fromMs < SLOW_MS) return
      }
      this.#failures.push({ fromMs, toMs, node: node(), outcome: error === undefined ? 'done' : messageOf(error) })
    }
  }

  /** The time without service: the longest pause between two successes after `sinceMs`. */
  longestPause(sinceMs: number): Pause {
    return longestPause(this.successes, sinceMs)
  }

  /** What was tried in a pause: a line for each kind of answer that came again and again. */
  explain({ fromMs, toMs }: Pause, zeroMs: number): string {
    const seconds = (valueMs: number) => (valueMs / 1000).toFixed(2)
    const lines: { first: Attempt; last: Attempt; count: number; longestMs: number }[] = []
    for (const one of this.#failures) {
      if (one.toMs <= fromMs || one.fromMs >= toMs) continue
      const line = lines.at(-1)
      const tookMs = one.toMs - one.fromMs
      if (line?.first.outcome !== one.outcome) lines.push({ first: one, last: one, count: 1, longestMs: tookMs })
      else Object.assign(line, { last: one, count: line.count + 1, longestMs: Math.max(line.longestMs, tookMs) })
    }
    return lines
      .map(({ first, last, count, longestMs }) => {
        const [from, to] = [first.fromMs, last.toMs].map((atMs) => seconds(atMs - zeroMs))
        const tries = count === 1 ? first.node : `${count} times, the longest for ${seconds(longestMs)} s`
        return `  ${from} to ${to} s, ${tries}: ${first.outcome}`
      })
      .join('\n')
  }
}

/** Milliseconds of `performance.now()`. */
type Pause = { readonly fromMs: number; readonly toMs: number }

const durationMs = ({ fromMs, toMs }: Pause): number => toMs - fromMs

function longestPause(successes: readonly number[], sinceMs: number): Pause {
  let longest = { fromMs: sinceMs, toMs: sinceMs }
  let last = sinceMs
  for (const at of successes) {
    if (at <= sinceMs) continue
    if (at - last > durationMs(longest)) longest = { fromMs: last, toMs: at }
    last = at
  }
  return longest
}

/** In one line: an error of `fetch` names its cause only. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { message, cause } = error
  return (cause instanceof Error ? `${message}: ${cause.message}` : message).split('\n', 1)[0] as string
}

/** Milliseconds without service, for each thing that users do. */
export type Outage = { messages: number; mqtt: number; tasks: number; changes: number }

/** What a check found wrong, in numbers. */
export type Losses = { missing: number; storedTwice: number; resultsTwice: number; revokedAccepted: number }

export class Traffic {
  readonly #programs: Programs
  readonly #domain: Domain
  readonly #running: readonly Running[]
  readonly #results: Target
  readonly #single: Target
  readonly #taskId: string
  readonly #effects: Effects
  readonly #consumer: ConsumerClient
  readonly #fleet: DeviceFleet
  readonly #source: Target
  readonly #notifying: Target
  /** Acknowledged messages that a webhook receives. */
  #notified = 0
  readonly #invoked = new Set<number>()
  readonly #revoked: { target: Target; atMs: number }[] = []
  /** Disabled clients that published. */
  readonly #accepted = new Set<string>()
  readonly #diaries = new Map<string, Diary>()
  readonly #loops: Promise<void>[] = []
  #isOver = false
  #paused: Promise<void> | undefined
  #resume: () => void = () => undefined
  #waiting = 0

  private constructor(
    programs: Programs,
    options: {
      domain: Domain
      running: readonly Running[]
      results: Target
      single: Target
      taskId: string
      effects: Effects
      consumer: ConsumerClient
      fleet: DeviceFleet
      source: Target
      notifying: Target
    },
  ) {
    this.#programs = programs
    this.#domain = options.domain
    this.#running = options.running
    this.#results = options.results
    this.#single = options.single
    this.#taskId = options.taskId
    this.#effects = options.effects
    this.#consumer = options.consumer
    this.#fleet = options.fleet
    this.#source = options.source
    this.#notifying = options.notifying
  }

  static async begin(programs: Programs, receiver: WebhookReceiver): Promise<Traffic> {
    const [api] = programs.api as [SupervisedProgram]
    const [manager] = programs.managers as [SupervisedProgram]
    const domain = await setUpDomain(api.call)
    const { authorization } = domain
    const running = await setUpWriters(domain)
    const results = await newClient(domain, 'results')
    const single = await newClient(domain, 'single messages')
    const task = await manager.call('POST', '/tasks', {
      body: {
        name: 'add',
        domain_id: domain.id,
        inputs: [1, 2],
        publish_result: { channel_id: results.path.split('/').at(-1) },
      },
      authorization,
    })
    expect(task.status, task.text).toBe(201)
    const taskId = task.json<{ id: string }>().id
    const file = new FormData()
    file.append('file', new Blob([readFileSync(MODULE)]), 'add.wasm')
    const uploaded = await manager.call('PUT', `/tasks/${taskId}/upload`, { body: file, authorization })
    expect(uploaded.status, uploaded.text).toBe(200)
    const source = running.find(({ kind }) => kind.isKeyed)?.target as Target
    const published = await newClient(domain, 'effects')
    const notifying = await newClient(domain, 'notifications')
    const effects = await Effects.begin(
      { domain, api: api.call, manager: manager.call },
      { source, published, notifying, receiver },
    )
    const consumer = await ConsumerClient.begin(programs.api, domain, source)
    const fleet = await DeviceFleet.begin(programs.api, domain)
    const parts = { domain, running, results, single, taskId, effects, consumer, fleet, source, notifying }
    const traffic = new Traffic(programs, parts)
    traffic.#begin()
    return traffic
  }

  /** Every loop succeeds again and again, beginning now. */
  async flows(what: string, deadlineMs: number, times = 3): Promise<void> {
    const sinceMs = performance.now()
    const stuck = () =>
      [...this.#diaries]
        .filter(([, { successes }]) => successes.filter((at) => at > sinceMs).length < times)
        .map(([name]) => name)
    await until(() => stuck().length === 0, `traffic flows ${what}`, deadlineMs).catch((error: unknown) => {
      throw new Error(`${(error as Error).message}; no success of ${stuck().join(', ')}`, { cause: error })
    })
  }

  outageSince(sinceMs: number): Outage {
    const longest = (prefix: string) =>
      Math.max(
        ...[...this.#diaries]
          .filter(([name]) => name.startsWith(prefix))
          .map(([, diary]) => durationMs(diary.longestPause(sinceMs))),
      )
    // A run on a lost worker waits for the end of its lease. Others are what shows whether tasks are served.
    const tasks = [...this.#diaries]
      .filter(([name]) => name.startsWith('task'))
      .flatMap(([, { successes }]) => successes)
      .toSorted((one, other) => one - other)
    return {
      messages: Math.max(longest('HTTP'), longest('CoAP'), longest('WebSocket')),
      mqtt: longest('MQTT'),
      tasks: durationMs(longestPause(tasks, sinceMs)),
      changes: longest('changes'),
    }
  }

  /** The longest pause of every client that waited for longer than `limitMs`, and what it tried meanwhile. */
  explain(sinceMs: number, limitMs: number): string {
    return [...this.#diaries]
      .map(([name, diary]) => ({ name, diary, pause: diary.longestPause(sinceMs) }))
      .filter(({ pause }) => durationMs(pause) > limitMs)
      .toSorted((one, other) => durationMs(other.pause) - durationMs(one.pause))
      .map(({ name, diary, pause }) => {
        const [from, to] = [pause.fromMs, pause.toMs].map((atMs) => ((atMs - sinceMs) / 1000).toFixed(2))
        return `${name}: nothing from ${from} to ${to} s\n${diary.explain(pause, sinceMs)}`
      })
      .join('\n')
  }

  /** How much was acknowledged so far. */
  get sums() {
    const messages = this.#running.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0)
    const [effects, notified, consumed] = [this.#effects.count, this.#notified, this.#consumer.count]
    const { changes, commands } = this.#fleet.counts
    const [runs, revoked] = [this.#invoked.size, this.#revoked.length]
    return { messages, runs, effects, notified, consumed, changes, commands, revoked }
  }

  /**
   * Pauses the traffic and compares: nothing acknowledged is missing, nothing that has a key is stored twice, each result is published
   * once, and what was revoked is refused on every node.
   */
  async check(): Promise<{ losses: Losses; faults: string[] }> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#paused = promise
    this.#resume = resolve
    const losses: Losses = { missing: 0, storedTwice: 0, resultsTwice: 0, revokedAccepted: 0 }
    const faults: string[] = []
    try {
      await until(() => this.#waiting === this.#loops.length, 'the traffic is paused', SETTLE_DEADLINE_MS)
      const nodes = this.#programs.api
      const node = nodes[randomInt(nodes.length)] as SupervisedProgram
      for (const one of this.#running) {
        const found = await compareStored(one, node.call)
        losses.missing += found.lost.length
        losses.storedTwice += found.repeated.length
        faults.push(...found.faults)
      }
      const results = await this.#compareResults(node)
      losses.missing += results.missing.length
      losses.resultsTwice += results.repeated.length
      if (results.missing.length > 0) faults.push(`results that are not published: ${results.missing.join(', ')}`)
      if (results.repeated.length > 0) faults.push(`results that are published twice: ${results.repeated.join(', ')}`)
      const effects = await this.#effects.compare(node.call)
      faults.push(...effects.faults)
      losses.missing += effects.missing.length + effects.untold.length
      losses.resultsTwice += effects.repeated.length
      if (effects.missing.length > 0) faults.push(`messages without an effect: ${effects.missing.join(', ')}`)
      if (effects.untold.length > 0) faults.push(`messages without a webhook: ${effects.untold.join(', ')}`)
      if (effects.repeated.length > 0) faults.push(`messages with two effects: ${effects.repeated.join(', ')}`)
      const consumed = await this.#consumer.compare((await stored(node.call, this.#source)).values)
      losses.missing += consumed.missing.length
      faults.push(...consumed.faults)
      if (consumed.missing.length > 0)
        faults.push(`messages that the consumer was not given: ${consumed.missing.join(', ')}`)
      faults.push(...(await this.#fleet.compare()))
      for (const { call } of nodes)
        for (const { target } of this.#revoked)
          if ((await publishAs(call, target)) === 202) this.#accepted.add(target.clientId)
      losses.revokedAccepted = this.#accepted.size
      if (losses.revokedAccepted > 0) faults.push(`disabled clients that published: ${[...this.#accepted].join(', ')}`)
      return { losses, faults }
    } finally {
      this.#paused = undefined
      this.#resume()
    }
  }

  /** One message over HTTP, as a device without retries sends it. */
  async publishOnce(): Promise<{ status: number; retryAfter: string | null; text: string }> {
    const { path, secret } = this.#single
    const answer = await fetch(`${this.#apiNode(0).base}${path}`, {
      method: 'POST',
      headers: { authorization: `Client ${secret}`, 'content-type': 'application/senml+json' },
      body: '[{"n":"v","v":1}]',
      signal: AbortSignal.timeout(ANSWER_DEADLINE_MS),
    })
    return { status: answer.status, retryAfter: answer.headers.get('retry-after'), text: await answer.text() }
  }

  async end(): Promise<void> {
    this.#isOver = true
    this.#resume()
    // A publish over MQTT ends when it is acknowledged, which a cluster that did not recover never does.
    const late = new Promise((resolve) => setTimeout(resolve, SETTLE_DEADLINE_MS).unref())
    await Promise.race([Promise.all([...this.#loops, this.#consumer.end(), this.#fleet.end()]), late])
  }

  #begin(): void {
    for (const running of this.#running)
      for (let writer = 0; writer < WRITERS_PER_KIND; writer++)
        this.#loops.push(this.#write(running, writer, this.#diaryOf(`${running.kind.name} ${writer}`)))
    for (let invoker = 0; invoker < INVOKERS; invoker++)
      this.#loops.push(this.#invoke(invoker, this.#diaryOf(`task ${invoker}`)))
    this.#loops.push(this.#change(this.#diaryOf('changes')), this.#attack(), this.#notify())
  }

  #diaryOf(name: string): Diary {
    const diary = new Diary()
    this.#diaries.set(name, diary)
    return diary
  }

  /** Waits between two actions, and while the traffic is paused. */
  async #pause(durationMs: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, durationMs))
    this.#waiting += 1
    while (this.#paused !== undefined && !this.#isOver) await this.#paused
    this.#waiting -= 1
  }

  async #write({ kind, target, acknowledged }: Running, first: number, diary: Diary): Promise<void> {
    let turn = first
    let node = this.#apiNode(turn)
    const pick = () => (node = this.#apiNode(turn++))
    using writer = kind.open(target, pick)
    for (let value = first; !this.#isOver; value += WRITERS_PER_KIND) {
      for (;;) {
        const end = diary.attempt(() => node.name)
        const isAcknowledged = await writer.write(value).then(
          () => (end(), true),
          (error: unknown) => (end(error), false),
        )
        if (isAcknowledged) acknowledged.push(value)
        await this.#pause(isAcknowledged ? PAUSE_MS : AFTER_FAILURE_MS)
        if (isAcknowledged || !kind.isKeyed || this.#isOver) break
      }
    }
  }

  /** Growing values, each until it is acknowledged. */
  async #notify(): Promise<void> {
    let turn = 0
    const kind = this.#running.find((one) => one.kind.isKeyed)?.kind
    using writer = kind?.open(this.#notifying, () => this.#apiNode(turn++))
    for (let value = 1; writer !== undefined && !this.#isOver;) {
      const isAcknowledged = await writer.write(value).then(
        () => true,
        () => false,
      )
      if (isAcknowledged) this.#notified = value++
      await this.#pause(isAcknowledged ? NOTIFYING_PAUSE_MS : AFTER_FAILURE_MS)
    }
  }

  /** Repeats each invocation with its key, at another manager, until it has its result. */
  async #invoke(first: number, diary: Diary): Promise<void> {
    let turn = first
    for (let value = first; !this.#isOver; value += INVOKERS) {
      let isDone = false
      while (!isDone && !this.#isOver) {
        const { managers } = this.#programs
        const manager = managers[turn++ % managers.length] as SupervisedProgram
        const end = diary.attempt(() => manager.name)
        const answer = await manager
          .call('POST', `/tasks/${this.#taskId}/invoke`, {
            body: { inputs: [value, 1] },
            authorization: this.#domain.authorization,
            headers: { 'idempotency-key': `invocation-${value}` },
          })
          .catch((error: unknown) => messageOf(error))
        isDone =
          typeof answer === 'object' && answer.status === 200 && answer.json<{ results: unknown }>().results !== null
        if (isDone) {
          expect((answer as Answer).json(), `invocation ${value}`).toMatchObject({ results: [value + 1] })
          this.#invoked.add(value + 1)
          end()
        } else end(typeof answer === 'object' ? `${answer.status} ${answer.text}` : answer)
        await this.#pause(isDone ? PAUSE_MS : AFTER_FAILURE_MS)
      }
    }
  }

  /** Creates clients, and disables each of them after it has published. */
  async #change(diary: Diary): Promise<void> {
    for (let turn = 0; !this.#isOver; turn++) {
      const { name, call } = this.#apiNode(turn)
      const end = diary.attempt(() => name)
      const isDone = await this.#revokeOne(turn, call).then(
        () => (end(), true),
        (error: unknown) => (end(error), false),
      )
      await this.#pause(isDone ? REVOCATION_PAUSE_MS : AFTER_FAILURE_MS)
    }
  }

  async #revokeOne(turn: number, call: SupervisedProgram['call']): Promise<void> {
    const { authorization, id } = this.#domain
    const target = await newClient({ ...this.#domain, create: this.#creator(turn) }, `revoked ${turn}`)
    const published = await publishAs(call, target)
    if (published !== 202) throw new Error(`publishing: ${published ?? 'no answer'}`)
    const answer = await call('POST', `/${id}/clients/${target.clientId}/disable`, { authorization })
    if (answer.status !== 200) throw new Error(`disabling: ${answer.status} ${answer.text}`)
    this.#revoked.push({ target, atMs: performance.now() })
  }

  /** Disabled clients try to publish all the time, on any node. */
  async #attack(): Promise<void> {
    while (!this.#isOver) {
      const inForce = this.#revoked.filter(({ atMs }) => performance.now() - atMs > IN_FORCE_MS)
      const one = inForce[randomInt(Math.max(1, inForce.length))]
      if (one !== undefined && (await publishAs(this.#apiNode(randomInt(2)).call, one.target)) === 202)
        this.#accepted.add(one.target.clientId)
      await this.#pause(PAUSE_MS)
    }
  }

  #apiNode(turn: number): SupervisedProgram {
    const { api } = this.#programs
    return api[turn % api.length] as SupervisedProgram
  }

  #creator(turn: number): Domain['create'] {
    return async <T>(path: string, body: unknown) => {
      const answer = await this.#apiNode(turn).call('POST', path, {
        body,
        authorization: this.#domain.authorization,
      })
      if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${answer.text}`)
      return (answer.text === '' ? undefined : answer.json<T>()) as T
    }
  }

  /** Waits until every result is published, as long as it may take. */
  async #compareResults({ call }: SupervisedProgram): Promise<{ missing: number[]; repeated: number[] }> {
    let values: number[] = []
    const missing = () => {
      const known = new Set(values)
      return [...this.#invoked].filter((value) => !known.has(value))
    }
    const isComplete = async () => {
      ;({ values } = await stored(call, this.#results))
      return missing().length === 0
    }
    await until(isComplete, 'every result is published', RESULTS_DEADLINE_MS).catch(() => undefined)
    return { missing: missing(), repeated: repeatedIn(values) }
  }
}

async function newClient({ id: domainId, create }: Domain, name: string): Promise<Target> {
  const client = await create<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, { name })
  const channel = await create<{ id: string }>(`/${domainId}/channels`, { name })
  await create(`/${domainId}/channels/connect`, {
    client_ids: [client.id],
    channel_ids: [channel.id],
    types: ['publish', 'subscribe'],
  })
  return { path: `/m/${domainId}/c/${channel.id}`, clientId: client.id, secret: client.credentials.secret }
}

/** The status of the answer; undefined without one. */
async function publishAs(call: SupervisedProgram['call'], { path, secret }: Target): Promise<number | undefined> {
  const answer = await call('POST', path, {
    body: [{ n: 'v', v: 1 }],
    authorization: `Client ${secret}`,
  }).catch(() => undefined)
  return answer?.status
}
