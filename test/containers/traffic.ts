/** Devices that write over every protocol and invocations of a task, through the two proxies of the deployment, until they are stopped. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { expect } from 'vitest'
import { expectStored, setUpDomain, setUpWriters, writeAll } from '../faults/losses.ts'
import type { Domain, Running } from '../faults/losses.ts'
import type { Node } from '../faults/loss-writers.ts'
import { until } from '../harness/until.ts'
import type { Answer } from '../harness/whole.ts'
import { ROOT } from '../programs/deployment-files.ts'
import type { Deployment } from './engine.ts'

export const HOST = 'localhost'
/** Behind the reverse proxy: the platform, and the port of the task managers. */
export const BASE = `https://${HOST}`
export const TASKS = `https://${HOST}:7070`

const ANSWER_DEADLINE_MS = 20_000
const FLOW_DEADLINE_MS = 60_000
/** Between two values of a writer: the suite is about faults, not about load. */
const WRITER_PAUSE_MS = 100
const INVOKERS = 2
/** Values that each kind of writer gets acknowledged before traffic counts as flowing. */
const FLOWING = 5

export type CallOptions = { body?: unknown; authorization?: string; headers?: Record<string, string> }

export async function callAt(url: string, method: string, options: CallOptions = {}): Promise<Answer> {
  const { body, authorization, headers } = options
  const response = await fetch(url, {
    method,
    headers: {
      ...(body === undefined || body instanceof FormData ? {} : { 'content-type': 'application/json' }),
      ...(authorization === undefined ? {} : { authorization }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: body instanceof FormData ? body : JSON.stringify(body) }),
    signal: AbortSignal.timeout(ANSWER_DEADLINE_MS),
  })
  const text = await response.text()
  return { status: response.status, text, json: <T>() => JSON.parse(text) as T }
}

export const call = async (method: string, path: string, options?: CallOptions): Promise<Answer> =>
  await callAt(`${BASE}${path}`, method, options)

/** What a client of the deployment needs: the certificate of the reverse proxy is trusted, and a domain is there. */
export async function enter({
  prepared,
}: Deployment): Promise<{ domain: Domain; edgeCertificate: string; authority: string }> {
  const edgeCertificate = join(prepared.folder, 'deploy/certs/edge.pem')
  setDefaultCACertificates([...getCACertificates(), readFileSync(edgeCertificate, 'utf8')])
  const authority = (await call('GET', '/certs/download-ca?format=pem')).text
  return { domain: await setUpDomain(call, prepared.variables['SKEIN_ADMIN_SECRET']), edgeCertificate, authority }
}

export class Traffic implements AsyncDisposable {
  readonly #domain: Domain
  readonly #running: readonly Running[]
  readonly #taskId: string
  #loops: Promise<unknown> = Promise.resolve()
  #isOver = false
  #invoked = 0
  readonly #wrong: string[] = []

  private constructor(domain: Domain, running: readonly Running[], taskId: string) {
    this.#domain = domain
    this.#running = running
    this.#taskId = taskId
  }

  /** `authority` signed the certificate of the nodes for MQTT. */
  static async begin(domain: Domain, authority: string): Promise<Traffic> {
    const { authorization } = domain
    const running = await setUpWriters(domain)
    const task = { name: 'add', domain_id: domain.id, inputs: [1, 2] }
    const created = await callAt(`${TASKS}/tasks`, 'POST', { body: task, authorization })
    expect(created.status, created.text).toBe(201)
    const { id: taskId } = created.json<{ id: string }>()
    const body = new FormData()
    body.append('file', new Blob([readFileSync(join(ROOT, 'examples/add/add.wasm'))]), 'add.wasm')
    const uploaded = await callAt(`${TASKS}/tasks/${taskId}/upload`, 'PUT', { body, authorization })
    expect(uploaded.status, uploaded.text).toBe(200)
    const traffic = new Traffic(domain, running, taskId)
    const mqttTls = { ca: authority, servername: HOST }
    const nodes: Node[] = [5683, 5693].map((coapPort) => ({ base: BASE, coapPort, mqttPort: 8883, mqttTls }))
    traffic.#loops = Promise.all([
      writeAll(running, nodes, () => traffic.#isOver, WRITER_PAUSE_MS),
      ...Array.from({ length: INVOKERS }, async (_, index) => await traffic.#invoke(index)),
    ])
    await traffic.flows('at first')
    return traffic
  }

  /** Waits until every kind of writer and the invocations get answers; returns how long that took, in milliseconds. */
  async flows(what: string): Promise<number> {
    const sinceMs = performance.now()
    const before = this.#running.map(({ acknowledged }) => acknowledged.length)
    const invokedBefore = this.#invoked
    const stuck = () => [
      ...this.#running
        .filter(({ acknowledged }, index) => acknowledged.length < (before[index] ?? 0) + FLOWING)
        .map(({ kind }) => kind.name),
      ...(this.#invoked < invokedBefore + FLOWING ? ['tasks'] : []),
    ]
    await until(() => stuck().length === 0, `traffic flows ${what}`, FLOW_DEADLINE_MS).catch((error: unknown) => {
      throw new Error(`${(error as Error).message}; no answers to ${stuck().join(', ')}`, { cause: error })
    })
    return performance.now() - sinceMs
  }

  /** Ends the traffic and compares: nothing acknowledged is missing, nothing with a key is stored twice, every result is right. */
  async check(what: string): Promise<void> {
    await this[Symbol.asyncDispose]()
    for (const one of this.#running) await expectStored(one, call, what)
    expect(this.#wrong).toEqual([])
    const counts = this.#running.map(({ kind, acknowledged }) => `${kind.name} ${acknowledged.length}`)
    process.stdout.write(`acknowledged: ${counts.join(', ')}, tasks ${this.#invoked}\n`)
  }

  /** Repeats each invocation with its key until it has its result. */
  async #invoke(first: number): Promise<void> {
    for (let value = first; !this.#isOver; value += INVOKERS) {
      for (let isDone = false; !isDone && !this.#isOver;) {
        const answer = await callAt(`${TASKS}/tasks/${this.#taskId}/invoke`, 'POST', {
          body: { inputs: [value, 1] },
          authorization: this.#domain.authorization,
          headers: { 'idempotency-key': `invocation-${value}` },
        }).catch(() => undefined)
        const results = answer?.status === 200 ? answer.json<{ results: number[] | null }>().results : null
        isDone = results !== null
        if (isDone) this.#invoked += 1
        if (isDone && results?.[0] !== value + 1) this.#wrong.push(`${value} + 1 = ${String(results)}`)
        await new Promise((resolve) => setTimeout(resolve, WRITER_PAUSE_MS))
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true
    await this.#loops
  }
}
