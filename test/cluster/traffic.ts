/**
 * What continues while something is killed: devices that write on every protocol, invocations of a task whose results are published
 * to a channel, and clients that are disabled. All of it can be paused, to compare what was acknowledged with what is there.
 */
import { randomInt } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { expectStored, setUpDomain, setUpWriters, stored } from '../faults/losses.ts'
import type { Domain, Running } from '../faults/losses.ts'
import type { Target } from '../faults/loss-writers.ts'
import { until } from '../harness/until.ts'
import type { Programs, SupervisedProgram } from './programs.ts'

const WRITERS_PER_KIND = 2
const INVOKERS = 4
/** Between two actions of one loop: the suite is about faults, not about load. */
const PAUSE_MS = 50
const AFTER_FAILURE_MS = 100
const REVOCATION_PAUSE_MS = 500
/** A change is in force on every node within a second; twice that is left for a busy machine. */
const IN_FORCE_MS = 2000
const ANSWER_DEADLINE_MS = 15_000
const SETTLE_DEADLINE_MS = 60_000
const MODULE = join(import.meta.dirname, '../../examples/add/add.wasm')

/** When one loop succeeded, in milliseconds of `performance.now()`. */
type Successes = number[]

/** The time without service, in milliseconds: the longest pause between two successes after `sinceMs`. */
function longestPauseMs(successes: Successes, sinceMs: number): number {
  let longest = 0
  let last = sinceMs
  for (const at of successes) {
    if (at <= sinceMs) continue
    longest = Math.max(longest, at - last)
    last = at
  }
  return longest
}

/** Milliseconds without service, for each thing that users do. */
export type Outage = { messages: number; mqtt: number; tasks: number; changes: number }

export class Traffic {
  readonly #programs: Programs
  readonly #domain: Domain
  readonly #running: readonly Running[]
  readonly #results: Target
  readonly #single: Target
  readonly #taskId: string
  readonly #invoked = new Set<number>()
  readonly #revoked: { target: Target; atMs: number }[] = []
  readonly #accepted: string[] = []
  readonly #successes = new Map<string, Successes>()
  readonly #loops: Promise<void>[] = []
  #isOver = false
  #paused: Promise<void> | undefined
  #resume: () => void = () => undefined
  #waiting = 0

  private constructor(
    programs: Programs,
    options: { domain: Domain; running: readonly Running[]; results: Target; single: Target; taskId: string },
  ) {
    this.#programs = programs
    this.#domain = options.domain
    this.#running = options.running
    this.#results = options.results
    this.#single = options.single
    this.#taskId = options.taskId
  }

  static async begin(programs: Programs): Promise<Traffic> {
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
    const traffic = new Traffic(programs, { domain, running, results, single, taskId })
    traffic.#begin()
    return traffic
  }

  /** Every loop succeeds again and again, beginning now. */
  async flows(what: string, deadlineMs: number, times = 3): Promise<void> {
    const sinceMs = performance.now()
    const stuck = () =>
      [...this.#successes].filter(([, list]) => list.filter((at) => at > sinceMs).length < times).map(([name]) => name)
    await until(() => stuck().length === 0, `traffic flows ${what}`, deadlineMs).catch((error: unknown) => {
      throw new Error(`${(error as Error).message}; no success of ${stuck().join(', ')}`, { cause: error })
    })
  }

  outageSince(sinceMs: number): Outage {
    const longest = (prefix: string) =>
      Math.max(
        ...[...this.#successes]
          .filter(([name]) => name.startsWith(prefix))
          .map(([, list]) => longestPauseMs(list, sinceMs)),
      )
    // A run on a lost worker waits for the end of its lease. Others are what shows whether tasks are served.
    const tasks = [...this.#successes]
      .filter(([name]) => name.startsWith('task'))
      .flatMap(([, list]) => list)
      .toSorted((one, other) => one - other)
    return {
      messages: Math.max(longest('HTTP'), longest('CoAP'), longest('WebSocket')),
      mqtt: longest('MQTT'),
      tasks: longestPauseMs(tasks, sinceMs),
      changes: longest('changes'),
    }
  }

  /** How much was acknowledged so far. */
  get sums(): { messages: number; runs: number; revoked: number } {
    const messages = this.#running.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0)
    return { messages, runs: this.#invoked.size, revoked: this.#revoked.length }
  }

  /**
   * Pauses the traffic and compares: nothing acknowledged is missing, nothing that has a key is stored twice, each result is published
   * once, and what was revoked is refused on every node.
   */
  async check(what: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#paused = promise
    this.#resume = resolve
    try {
      await until(() => this.#waiting === this.#loops.length, 'the traffic is paused', SETTLE_DEADLINE_MS)
      const nodes = this.#programs.api
      const node = nodes[randomInt(nodes.length)] as SupervisedProgram
      for (const one of this.#running) await expectStored(one, node.call, what)
      await this.#requireResults(node, what)
      for (const { call } of nodes)
        for (const { target } of this.#revoked)
          expect(await publishAs(call, target), `a disabled client publishes ${what}`).not.toBe(202)
      expect(this.#accepted, `a client published after it was disabled, ${what}`).toEqual([])
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
    await Promise.all(this.#loops)
  }

  #begin(): void {
    for (const running of this.#running)
      for (let writer = 0; writer < WRITERS_PER_KIND; writer++)
        this.#loops.push(this.#write(running, writer, this.#listOf(`${running.kind.name} ${writer}`)))
    for (let invoker = 0; invoker < INVOKERS; invoker++)
      this.#loops.push(this.#invoke(invoker, this.#listOf(`task ${invoker}`)))
    this.#loops.push(this.#change(this.#listOf('changes')), this.#attack())
  }

  #listOf(name: string): Successes {
    const list: Successes = []
    this.#successes.set(name, list)
    return list
  }

  /** Waits between two actions, and while the traffic is paused. */
  async #pause(durationMs: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, durationMs))
    this.#waiting += 1
    while (this.#paused !== undefined && !this.#isOver) await this.#paused
    this.#waiting -= 1
  }

  async #write({ kind, target, acknowledged }: Running, first: number, successes: Successes): Promise<void> {
    let turn = first
    using writer = kind.open(target, () => this.#apiNode(turn++))
    for (let value = first; !this.#isOver; value += WRITERS_PER_KIND) {
      for (;;) {
        const isAcknowledged = await writer.write(value).catch(() => false)
        if (isAcknowledged) {
          acknowledged.push(value)
          successes.push(performance.now())
        }
        await this.#pause(isAcknowledged ? PAUSE_MS : AFTER_FAILURE_MS)
        if (isAcknowledged || !kind.isKeyed || this.#isOver) break
      }
    }
  }

  /** Repeats each invocation with its key, at another manager, until it has its result. */
  async #invoke(first: number, successes: Successes): Promise<void> {
    let turn = first
    for (let value = first; !this.#isOver; value += INVOKERS) {
      let isDone = false
      while (!isDone && !this.#isOver) {
        const { managers } = this.#programs
        const manager = managers[turn++ % managers.length] as SupervisedProgram
        const answer = await manager
          .call('POST', `/tasks/${this.#taskId}/invoke`, {
            body: { inputs: [value, 1] },
            authorization: this.#domain.authorization,
            headers: { 'idempotency-key': `invocation-${value}` },
          })
          .catch(() => undefined)
        isDone = answer?.status === 200 && answer.json<{ results: unknown }>().results !== null
        if (isDone) {
          expect(answer?.json(), `invocation ${value}`).toMatchObject({ results: [value + 1] })
          this.#invoked.add(value + 1)
          successes.push(performance.now())
        }
        await this.#pause(isDone ? PAUSE_MS : AFTER_FAILURE_MS)
      }
    }
  }

  /** Creates clients, and disables each of them after it has published. */
  async #change(successes: Successes): Promise<void> {
    const { authorization, id } = this.#domain
    let turn = 0
    while (!this.#isOver) {
      const target = await newClient({ ...this.#domain, create: this.#creator(turn) }, `revoked ${turn}`).catch(
        () => undefined,
      )
      const { call } = this.#apiNode(turn++)
      const answer =
        target === undefined || (await publishAs(call, target)) !== 202
          ? undefined
          : await call('POST', `/${id}/clients/${target.clientId}/disable`, { authorization }).catch(() => undefined)
      if (target !== undefined && answer?.status === 200) {
        successes.push(performance.now())
        this.#revoked.push({ target, atMs: performance.now() })
      }
      await this.#pause(answer?.status === 200 ? REVOCATION_PAUSE_MS : AFTER_FAILURE_MS)
    }
  }

  /** Disabled clients try to publish all the time, on any node. */
  async #attack(): Promise<void> {
    while (!this.#isOver) {
      const inForce = this.#revoked.filter(({ atMs }) => performance.now() - atMs > IN_FORCE_MS)
      const one = inForce[randomInt(Math.max(1, inForce.length))]
      if (one !== undefined && (await publishAs(this.#apiNode(randomInt(2)).call, one.target)) === 202)
        this.#accepted.push(one.target.clientId)
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
      if (answer.status !== 201) throw new Error(answer.text)
      return (answer.text === '' ? undefined : answer.json<T>()) as T
    }
  }

  async #requireResults({ call }: SupervisedProgram, what: string): Promise<void> {
    const missing = (values: readonly number[]) => {
      const known = new Set(values)
      return [...this.#invoked].filter((value) => !known.has(value))
    }
    const values = await until(
      async () => {
        const found = await stored(call, this.#results)
        return missing(found.values).length === 0 && found.values
      },
      `every result is published ${what}`,
      SETTLE_DEADLINE_MS,
    )
    expect(values.length, `a result is published twice ${what}`).toBe(new Set(values).size)
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
