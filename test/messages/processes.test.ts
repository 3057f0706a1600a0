/** Two processes of one machine, as `npm run api` starts them, without Redis: what holds between nodes holds between them. */
import { Agent, request } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Caller, TestResponse } from '../harness/api.ts'
import { openEvents } from '../harness/event-stream.ts'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { createInstallation, launch } from '../harness/whole.ts'
import { behaveAsNodes } from './several-nodes.ts'
import type { NodeIndex, SeveralNodes } from './several-nodes.ts'

const READY_DEADLINE_MS = 120_000
const ANSWER_DEADLINE_MS = 20_000

let nodes: SeveralNodes & { base: string }

/** One connection that stays open. */
const newAgent = () => new Agent({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1 })

async function send(
  agent: Agent,
  url: string,
  { method, headers, body }: { method: string; headers: Record<string, string>; body?: string | undefined },
): Promise<TestResponse> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const sent = request(url, { method, agent, headers, timeout: ANSWER_DEADLINE_MS })
    sent.once('timeout', () => sent.destroy(new Error('no answer')))
    sent.once('response', resolve).once('error', reject).end(body)
  })
  let text = ''
  for await (const chunk of response.setEncoding('utf8')) text += String(chunk)
  return { status: response.statusCode ?? 0, headers: response.headers, text, json: <T>() => JSON.parse(text) as T }
}

/** A connection to one of the processes: the kernel chooses, so it is opened until it leads there. */
async function connectTo(base: string, node: NodeIndex): Promise<Agent> {
  return await until(
    async () => {
      const agent = newAgent()
      const health = await send(agent, `${base}/health`, { method: 'GET', headers: {} })
      if (health.json<{ process: string }>().process === String(node + 1)) return agent
      agent.destroy()
      return undefined
    },
    `a connection to process ${node + 1}`,
  )
}

async function startProcesses(): Promise<typeof nodes> {
  const [mqttPort = 0, coapPort = 0] = await freePorts(2)
  const installation = await createInstallation({
    SKEIN_API_PROCESSES: '2',
    SKEIN_MQTT_PORT: String(mqttPort),
    SKEIN_COAP_PORT: String(coapPort),
  })
  const whole = launch(installation, 'programs/api.ts')
  const { base } = installation
  const ready = async () =>
    (await whole.call('GET', '/ready').catch(() => undefined))?.json<{ status: string }>().status
  await until(async () => (await ready()) === 'ready', `both serve: ${whole.output()}`, READY_DEADLINE_MS)
  const agents = [await connectTo(base, 0), await connectTo(base, 1)] as const
  const callOver =
    (agent: Agent, authorization: string | undefined): Caller =>
    (method, path, body, headers = {}) =>
      send(agent, `${base}${path}`, {
        method,
        headers: {
          ...(authorization === undefined ? {} : { authorization }),
          ...(body === undefined || typeof body === 'string' ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        body: body === undefined || typeof body === 'string' ? (body as string | undefined) : JSON.stringify(body),
      })
  const login = await callOver(agents[0], undefined)('POST', '/users/tokens/issue', {
    identity: 'admin',
    secret: 'the-first-admin',
  })
  const owner = callOver(agents[0], `Bearer ${login.json<{ access_token: string }>().access_token}`)
  const domain = await owner('POST', '/domains', { name: 'processes' })
  const streams: Agent[] = []
  return {
    base,
    domainId: domain.json<{ id: string }>().id,
    owner,
    as: (node, authorization) => callOver(agents[node], authorization),
    async follow(node, path, authorization) {
      const agent = await connectTo(base, node)
      streams.push(agent)
      return await openEvents(`${base}${path}/live`, { authorization }, agent)
    },
    mqttPort: () => mqttPort,
    async [Symbol.asyncDispose]() {
      for (const agent of [...agents, ...streams]) agent.destroy()
      await whole[Symbol.asyncDispose]()
      installation[Symbol.dispose]()
    },
  }
}

describe.runIf(process.platform === 'linux')('two processes', { timeout: 120_000 }, () => {
  beforeAll(async () => void (nodes = await startProcesses()), READY_DEADLINE_MS)
  afterAll(() => nodes[Symbol.asyncDispose]())

  behaveAsNodes(() => nodes)

  test('each answers for all, and identifies itself', async () => {
    for (const node of [0, 1] as const) {
      const call = nodes.as(node, undefined)
      expect((await call('GET', '/health')).json()).toMatchObject({ status: 'pass', process: String(node + 1) })
      const { status, checks } = (await call('GET', '/ready')).json<{
        status: string
        checks: Record<string, object>
      }>()
      expect(status).toBe('ready')
      expect(Object.keys(checks)).toEqual(expect.arrayContaining(['process 1', 'process 2', 'processes']))
      const { text } = await call('GET', '/metrics')
      for (const name of ['1', '2', 'supervisor'])
        expect(text).toMatch(new RegExp(`^process_resident_memory_bytes{process="${name}"} `, 'm'))
      expect(text.match(/^# TYPE skein_requests_total counter$/gm)).toHaveLength(1)
      expect(text).toContain('skein_processes_serving{process="supervisor"} 2')
    }
  })
})
