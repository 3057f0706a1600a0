/** What is measured of a build: jobs of users over the public protocols alone, so that one loader fits every build. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { formOf } from '../http-caller.ts'
import type { RawBody } from '../http-caller.ts'
import { load, prepareRequest } from '../http-load.ts'
import { openClient, publishOn } from '../mqtt/client.ts'
import { prepareDevices } from '../platform.ts'
import type { Device } from '../platform.ts'
import type { RunningBuild } from './builds.ts'

const DEVICES = 100
const MQTT_WINDOW = 5
const HTTP_CONNECTIONS = 64
const RECORDS = 10
const TASKS = 10_000
const FAR_OFFSET = 9_900
const PAGE = 100
const CREATORS = 16
/** Between two messages that start a run each, at most. */
const MESSAGE_PAUSE_MS = 60
/** A page of the runs of a task. */
const RUNS = 100
/** Until the last runs of a round have begun. */
const BEGUN_MS = 1_000
/** Between two questions of a client: 3 ms at first, then ever less often. */
const FIRST_ASK_MS = 3
const ASK_GROWTH = 1.5
const MAX_ASK_MS = 40
const OVER = new Set([3, 4, 5, 6])

const JSON_TYPE = { 'Content-Type': 'application/json' }
const ADD = { name: 'add', inputs: [20, 22] }
const CORE_MODULE = readFileSync(join(import.meta.dirname, '../../examples/add/add.wasm'))
const COMPONENT = `(component
  (core module $m (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add))
  (core instance $i (instantiate $m))
  (func (export "add") (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add"))))`

export type Done = {
  /** Units within the time, and their latencies. */
  count: number
  perSecond: number
  latenciesMs: number[]
  refused: number
}

/** What a build's data folder contains for the jobs: it is prepared once and used in each round. */
export type World = {
  domainId: string
  channelId: string
  devices: Device[]
  coreTask: string
  componentTask: string
  /** A task that messages of a channel of its own start. */
  triggered: { taskId: string; path: string; token: string }
}

export type Job = {
  what: string
  unit: string
  /** What this job needs beyond the world, once for each build. */
  prepare?: (build: RunningBuild) => Promise<void>
  run: (build: RunningBuild, world: World, durationMs: number) => Promise<Done>
}

export async function prepareWorld(build: RunningBuild): Promise<World> {
  const { domainId, channelId, devices, token } = await prepareDevices(build, DEVICES)
  const { id } = await build.call<{ id: string }>('POST', `/${domainId}/channels`, {}, token)
  const task = { ...ADD, inputs: [0], domain_id: domainId, trigger: { channel_id: id } }
  const component = Buffer.from(await parse(COMPONENT))
  return {
    domainId,
    channelId,
    devices,
    coreTask: await createTask(build, formOf(CORE_MODULE)),
    componentTask: await createTask(build, formOf(component)),
    triggered: {
      taskId: await createTask(build, formOf(CORE_MODULE), task, token),
      path: `/m/${domainId}/c/${id}`,
      token,
    },
  }
}

async function createTask(
  { call }: RunningBuild,
  form: RawBody,
  fields: object = ADD,
  authorization?: string,
): Promise<string> {
  const { id } = await call<{ id: string }>('POST', '/tasks', fields, authorization)
  await call('PUT', `/tasks/${id}/upload`, form, authorization)
  return id
}

const invoke =
  (taskOf: (world: World) => string, connections: number): Job['run'] =>
  async ({ port }, world, durationMs) => {
    const path = `/tasks/${taskOf(world)}/invoke`
    const requests = [prepareRequest('POST', path, JSON_TYPE, JSON.stringify({ inputs: ADD.inputs }))]
    return doneOf(await load({ port, requests, connections, durationMs, status: 200 }))
  }

const get =
  (pathOf: (world: World) => string): Job['run'] =>
  async ({ port }, world, durationMs) => {
    const requests = [prepareRequest('GET', pathOf(world), {})]
    return doneOf(await load({ port, requests, connections: 1, durationMs, status: 200 }))
  }

async function publishOverHttp({ port }: RunningBuild, world: World, durationMs: number): Promise<Done> {
  const { domainId, channelId, devices } = world
  const requests = devices.map(({ secret }, index) =>
    prepareRequest(
      'POST',
      `/m/${domainId}/c/${channelId}`,
      { Authorization: `Client ${secret}`, 'Content-Type': 'application/senml+json' },
      packOf(index, RECORDS),
    ),
  )
  return doneOf(await load({ port, requests, connections: HTTP_CONNECTIONS, durationMs, status: 202 }))
}

function packOf(index: number, length: number): string {
  const records = Array.from({ length }, (_, place) => ({ n: `m${place}`, u: 'V', v: index + place / 10, t: -place }))
  return JSON.stringify([{ bn: 'device:', ...records[0] }, ...records.slice(1)])
}

async function publishOverMqtt({ mqttPort }: RunningBuild, world: World, durationMs: number): Promise<Done> {
  const { domainId, channelId, devices } = world
  const clients = await Promise.all(devices.map((device, index) => openClient(mqttPort, `d${index}`, device)))
  const began = performance.now()
  const publishers = clients.map((client, index) =>
    publishOn(client, `m/${domainId}/c/${channelId}`, Buffer.from(packOf(index, 1)), MQTT_WINDOW),
  )
  await pause(durationMs)
  const count = publishers.reduce((sum, publisher) => sum + publisher.stop(), 0)
  const perSecond = (count * 1000) / (performance.now() - began)
  for (const client of clients) client.end()
  return { count, perSecond, latenciesMs: [], refused: 0 }
}

/** Publishes one message after the other. The latencies are those from a message to the start of its run, by the clock of the machine. */
async function startByMessages({ call }: RunningBuild, world: World, durationMs: number): Promise<Done> {
  const { taskId, path, token } = world.triggered
  const sentMs: number[] = []
  const began = performance.now()
  while (performance.now() - began < durationMs) {
    sentMs.push(Date.now())
    const body = { type: 'application/senml+json', bytes: Buffer.from(`[{"n":"v","v":${sentMs.length}}]`) }
    await call('POST', path, body, token)
    await pause(Math.random() * MESSAGE_PAUSE_MS)
  }
  const perSecond = (sentMs.length * 1000) / (performance.now() - began)
  await pause(BEGUN_MS)
  const startedMs: number[] = []
  while (startedMs.length < sentMs.length) {
    const page = `/tasks/${taskId}/runs?limit=${RUNS}&offset=${startedMs.length}`
    const { runs } = await call<{ runs: { running_at: string | null }[] }>('GET', page, undefined, token)
    if (runs.length === 0) throw new Error('there are fewer runs than messages')
    startedMs.push(...runs.map(({ running_at: at }) => Date.parse(at ?? '')))
  }
  // The newest came first.
  const latenciesMs = sentMs.toReversed().map((at, place) => (startedMs[place] ?? NaN) - at)
  if (latenciesMs.some((one) => !(one >= 0))) throw new Error('the starts of the runs are not those of their messages')
  return { count: sentMs.length, perSecond, latenciesMs, refused: 0 }
}

async function createTasks({ port }: RunningBuild, _world: World, durationMs: number): Promise<Done> {
  const requests = [prepareRequest('POST', '/tasks', JSON_TYPE, JSON.stringify(ADD))]
  return doneOf(await load({ port, requests, connections: CREATORS, durationMs, status: 201 }))
}

/** The tasks that the far page needs. */
async function createManyTasks({ port, call }: RunningBuild): Promise<void> {
  const { total } = await call<{ total: number }>('GET', '/tasks?limit=1')
  const request = prepareRequest('POST', '/tasks', JSON_TYPE, JSON.stringify(ADD))
  const requests = (turn: number) => (total + turn < TASKS ? request : undefined)
  await load({ port, requests, connections: CREATORS, durationMs: Infinity, status: 201 })
}

/** Creates a task, uploads its module, starts it and asks until it has ended. */
async function firstRuns(build: RunningBuild, _world: World, durationMs: number): Promise<Done> {
  const { call } = build
  const form = formOf(CORE_MODULE)
  const latenciesMs: number[] = []
  const began = performance.now()
  const end = began + durationMs
  const client = async () => {
    for (let now = performance.now(); now < end;) {
      const id = await createTask(build, form)
      await call('POST', `/tasks/${id}/start`)
      for (let waitMs = FIRST_ASK_MS; ; waitMs = Math.min(MAX_ASK_MS, waitMs * ASK_GROWTH)) {
        await pause(waitMs)
        if (OVER.has((await call<{ state: number }>('GET', `/tasks/${id}`)).state)) break
      }
      latenciesMs.push(performance.now() - now)
      now = performance.now()
    }
  }
  await Promise.all(Array.from({ length: HTTP_CONNECTIONS }, client))
  const perSecond = (latenciesMs.length * 1000) / (performance.now() - began)
  return { count: latenciesMs.length, perSecond, latenciesMs, refused: 0 }
}

const doneOf = ({ answered, refused, perSecond, latenciesMs }: Awaited<ReturnType<typeof load>>): Done => ({
  count: answered,
  perSecond,
  latenciesMs,
  refused,
})

/**
 * In the order in which they run: the busiest first, so that the others do not include the warm-up of the service, and those that create
 * tasks last, so that each build has as many tasks to list.
 */
export const JOBS = {
  'invoke-64': { what: 'invoke a core module, 64 callers', unit: 'run', run: invoke((world) => world.coreTask, 64) },
  'invoke-1': { what: 'invoke a core module, 1 caller', unit: 'run', run: invoke((world) => world.coreTask, 1) },
  'invoke-component': {
    what: 'invoke a component, 64 callers',
    unit: 'run',
    run: invoke((world) => world.componentTask, 64),
  },
  http: { what: `publish ${RECORDS} records over HTTP, 64 connections`, unit: 'message', run: publishOverHttp },
  mqtt: {
    what: `publish a record over MQTT QoS 1, ${DEVICES} connections with ${MQTT_WINDOW} in flight`,
    unit: 'message',
    run: publishOverMqtt,
  },
  trigger: {
    what: 'from a message to the start of its run, one message after the other',
    unit: 'message',
    run: startByMessages,
  },
  get: { what: 'read one task, 1 client', unit: 'request', run: get((world) => `/tasks/${world.coreTask}`) },
  page: {
    what: `read a page of ${PAGE} of ${TASKS.toLocaleString('en')} tasks, 1 client`,
    unit: 'request',
    prepare: createManyTasks,
    run: get(() => `/tasks?limit=${PAGE}`),
  },
  'far-page': {
    what: `the same at offset ${FAR_OFFSET.toLocaleString('en')}`,
    unit: 'request',
    prepare: createManyTasks,
    run: get(() => `/tasks?limit=${PAGE}&offset=${FAR_OFFSET}`),
  },
  create: { what: `create a task without a module, ${CREATORS} clients`, unit: 'task', run: createTasks },
  'first-run': { what: 'create, upload, start and ask, 64 clients', unit: 'result', run: firstRuns },
} satisfies Record<string, Job>

export type JobName = keyof typeof JOBS
