/**
 * Kills processes while users give commands and devices carry them out over HTTP and MQTT: no command that was acknowledged is lost, each ends once,
 * with the first answer that was acknowledged, and none stays open. SKEIN_TEST_KILLS sets the number of kills.
 */
import { randomUUID } from 'node:crypto'
import mqtt from 'mqtt'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { strike } from '../harness/strikes.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 4)
const DEVICES_OF_A_KIND = 3
/** Commands that are given and answered between two kills, at least. */
const BETWEEN = 40
const DEADLINE_MS = 120_000
/** A device does not answer as many: they end by themselves. */
const FORGOTTEN = 0.1
/** A device answers as many twice, with another result. */
const DOUBLED = 0.2
const TIMEOUT = '4s'
const PAGE = 100

let installation: Installation
let mqttPort: number
beforeEach(async () => {
  ;[mqttPort] = (await freePorts(1)) as [number]
  installation = await createInstallation({ SKEIN_MQTT_PORT: String(mqttPort) })
})
afterEach(() => installation[Symbol.dispose]())

type Device = { id: string; secret: string; isMqtt: boolean }
type Setup = { token: string; domainId: string; devices: Device[] }
type Command = { id: string; name: string; status: string; result?: unknown; late_answer?: { status: string } }

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

async function setUp(whole: Whole): Promise<Setup> {
  const json = async <T>(path: string, body: unknown, authorization?: string): Promise<T> => {
    const answer = await whole.call('POST', path, { body, ...(authorization === undefined ? {} : { authorization }) })
    expect(answer.status, answer.text).toBeLessThan(300)
    return answer.json<T>()
  }
  const credentials = { identity: 'admin', secret: 'the-first-admin' }
  const login = await json<{ access_token: string }>('/users/tokens/issue', credentials)
  const token = `Bearer ${login.access_token}`
  const { id: domainId } = await json<{ id: string }>('/domains', { name: 'commands' }, token)
  const devices: Device[] = []
  for (let count = 0; count < 2 * DEVICES_OF_A_KIND; count++) {
    const client = await json<{ id: string; credentials: { secret: string } }>(`/${domainId}/clients`, {}, token)
    devices.push({ id: client.id, secret: client.credentials.secret, isMqtt: count % 2 === 1 })
  }
  return { token, domainId, devices }
}

/** Users give each device one command after the other, each with a key until it is acknowledged. */
function give(whole: () => Whole, { domainId, token, devices }: Setup) {
  const given = new Map<string, string>()
  const faults: string[] = []
  let isOver = false
  async function user({ id }: Device): Promise<void> {
    for (let number = 0; !isOver; number++) {
      const name = `n${number}`
      for (;;) {
        const answer = await whole()
          .call('POST', `/${domainId}/clients/${id}/commands`, {
            body: { name, timeout: TIMEOUT },
            authorization: token,
            headers: { 'idempotency-key': name },
          })
          .catch(() => undefined)
        if (answer?.status === 201) {
          given.set(answer.json<Command>().id, id)
          break
        }
        // Too many are open: it is given later.
        if (answer !== undefined && answer.status < 500 && answer.status !== 422) faults.push(answer.text)
        await pause(20)
      }
      await pause(5)
    }
  }
  const loops = devices.map(user)
  return {
    given,
    faults,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

/** Devices that carry commands out. `send` resolves when an answer was acknowledged; `isLate` where the protocol says so. */
function carryOut() {
  /** By command, the results whose acknowledgement came, in order. */
  const answers = new Map<string, string[]>()
  const underWay = new Set<string>()
  const forgotten = new Set<string>()
  async function handle(id: string, send: (result: string) => Promise<void>): Promise<void> {
    if (underWay.has(id) || answers.has(id) || forgotten.has(id)) return
    if (Math.random() < FORGOTTEN) return void forgotten.add(id)
    underWay.add(id)
    const results = [randomUUID(), ...(Math.random() < DOUBLED ? [randomUUID()] : [])]
    for (const result of results) {
      await send(result)
      answers.set(id, [...(answers.get(id) ?? []), result])
    }
    underWay.delete(id)
  }
  return { answers, forgotten, handle }
}

type Work = ReturnType<typeof carryOut>

function startHttpDevice(whole: () => Whole, { domainId }: Setup, { secret }: Device, work: Work) {
  const authorization = `Client ${secret}`
  const faults: string[] = []
  let isOver = false
  const send = async (id: string, result: string) => {
    for (;;) {
      const answer = await whole()
        .call('POST', `/c/${domainId}/commands/${id}/result`, { authorization, body: { status: 'succeeded', result } })
        .catch(() => undefined)
      if (answer?.status === 200) return
      if (answer !== undefined && answer.status < 500) faults.push(answer.text)
      await pause(20)
    }
  }
  async function loop(): Promise<void> {
    while (!isOver) {
      const answer = await whole()
        .call('GET', `/c/${domainId}/commands?wait=1s`, { authorization })
        .catch(() => undefined)
      if (answer?.status !== 200) {
        await pause(20)
        continue
      }
      for (const { id } of answer.json<{ commands: Command[] }>().commands)
        await work.handle(id, (result) => send(id, result))
    }
  }
  const running = loop()
  return {
    faults,
    async stop() {
      isOver = true
      await running
    },
  }
}

function startMqttDevice({ domainId }: Setup, { id, secret }: Device, work: Work) {
  const client = mqtt.connect(`mqtt://127.0.0.1:${mqttPort}`, {
    clientId: id,
    clean: false,
    username: id,
    password: secret,
    reconnectPeriod: 100,
    reconnectOnConnackError: true,
    connectTimeout: 10_000,
    keepalive: 5,
    protocolVersion: 5,
    properties: { sessionExpiryInterval: 3_600 },
  })
  client.on('error', () => undefined)
  client.on('connect', () => client.subscribe(`c/${domainId}/commands/requests/+/+`, { qos: 1 }, () => undefined))
  client.on('message', (topic) => {
    const command = topic.split('/')[4] ?? ''
    const send = async (result: string) => {
      // mqtt.js sends it again until it is acknowledged.
      const body = JSON.stringify({ status: 'succeeded', result })
      await client.publishAsync(`c/${domainId}/commands/results/${command}`, body, { qos: 1 })
    }
    void work.handle(command, send)
  })
  return { faults: [] as string[], stop: () => client.endAsync(true) }
}

/** All commands of a device. */
async function listOf(whole: Whole, { domainId, token }: Setup, { id }: Device): Promise<Command[]> {
  const commands: Command[] = []
  for (;;) {
    const path = `/${domainId}/clients/${id}/commands?limit=${PAGE}&offset=${commands.length}`
    const page = (await whole.call('GET', path, { authorization: token })).json<{ commands: Command[] }>()
    commands.push(...page.commands)
    if (page.commands.length < PAGE) return commands
  }
}

async function countEnds(whole: Whole, { domainId, token }: Setup, { id }: Device): Promise<number> {
  let total = 0
  for (const operation of ['command.answer', 'command.expire', 'command.cancel']) {
    const path = `/${domainId}/journal/client/${id}?operation=${operation}`
    total += (await whole.call('GET', path, { authorization: token })).json<{ total: number }>().total
  }
  return total
}

test('each command is kept and ends once', { timeout: DEADLINE_MS + KILLS * 20_000 }, async () => {
  let whole = await startWhole(installation)
  await using stack = new AsyncDisposableStack()
  stack.defer(async () => await whole[Symbol.asyncDispose]())
  const setup = await setUp(whole)
  const work = carryOut()
  const devices = setup.devices.map((device) =>
    device.isMqtt ? startMqttDevice(setup, device, work) : startHttpDevice(() => whole, setup, device, work),
  )
  const users = give(() => whole, setup)
  stack.defer(async () => {
    await users.stop()
    await Promise.all(devices.map((device) => device.stop()))
  })
  for (let turn = 0; turn < KILLS; turn++) {
    const [given, answered] = [users.given.size + BETWEEN, work.answers.size + BETWEEN]
    await until(
      () => users.given.size >= given && work.answers.size >= answered,
      () => `commands between two kills: ${users.given.size} given, ${work.answers.size} answered`,
      DEADLINE_MS,
    )
    whole = await strike(installation, whole, turn)
  }
  await users.stop()
  const all = async () => (await Promise.all(setup.devices.map((device) => listOf(whole, setup, device)))).flat()
  const isOpen = ({ status }: Command) => status === 'queued' || status === 'delivered'
  await until(async () => !(await all()).some(isOpen), 'no command is open', DEADLINE_MS)
  await Promise.all(devices.map((device) => device.stop()))

  expect([...users.faults, ...devices.flatMap(({ faults }) => faults)]).toEqual([])
  const commands = new Map((await all()).map((command) => [command.id, command]))
  expect([...users.given.keys()].filter((id) => !commands.has(id))).toEqual([])
  // One command for each key.
  expect(commands.size).toBe(users.given.size)
  for (const { id, status, result } of commands.values()) {
    const [first] = work.answers.get(id) ?? []
    if (status === 'succeeded') expect(result, id).toBe(first)
    else expect([id, status]).toEqual([id, 'timed_out'])
  }
  const succeeded = [...commands.values()].filter(({ status }) => status === 'succeeded')
  expect(succeeded.length).toBeGreaterThan(KILLS * BETWEEN * 0.5)
  expect([...work.forgotten].every((id) => commands.get(id)?.status === 'timed_out')).toBe(true)
  const ends = await Promise.all(setup.devices.map((device) => countEnds(whole, setup, device)))
  expect(ends.reduce((sum, count) => sum + count, 0)).toBe(commands.size)
})
