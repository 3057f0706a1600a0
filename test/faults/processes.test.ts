/**
 * Several processes behind the same ports, without Redis: kill -9 of one of them under load loses nothing that was acknowledged and
 * stores nothing twice, the others serve meanwhile, and a replacement takes its place, CoAP included.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { freePorts } from '../harness/ports.ts'
import { commandOf, createInstallation, familyOf, launch, startWhole } from '../harness/whole.ts'
import type { Whole } from '../harness/whole.ts'
import { expectStored, setUp, writeAll } from './losses.ts'

const KILLS = Number(process.env['SKEIN_TEST_BLOWS'] ?? 4)
const READY_DEADLINE_MS = 120_000
const HEAL_DEADLINE_MS = 60_000
/** Values of each kind of writer between two kills. */
const BETWEEN = 15

type Ready = { status: string; checks: Record<string, { status: string }> }

const readiness = async (whole: Whole) =>
  (await whole.call('GET', '/ready').catch(() => undefined))?.json<Ready>().status

const pidOf = (whole: Whole, name: string) =>
  familyOf(whole.pid).find((pid) => commandOf(pid).trim().endsWith(`api-process.ts ${name}`))

async function start(environment: Record<string, string> = {}) {
  const [coapPort = 0, mqttPort = 0] = await freePorts(2)
  const installation = await createInstallation({
    SKEIN_API_PROCESSES: '2',
    SKEIN_COAP_PORT: String(coapPort),
    SKEIN_MQTT_PORT: String(mqttPort),
    ...environment,
  })
  const whole = launch(installation, 'programs/api.ts')
  const { base } = installation
  return {
    whole,
    installation,
    node: { base, coapPort, mqttPort },
    [Symbol.asyncDispose]: async () => {
      await whole[Symbol.asyncDispose]()
      installation[Symbol.dispose]()
    },
  }
}

test(
  'kill -9 of one process under load loses nothing that was acknowledged, and the others serve meanwhile',
  { timeout: 400_000 },
  async () => {
    await using started = await start()
    const { whole, node } = started
    await until(async () => (await readiness(whole)) === 'ready', `both serve: ${whole.output()}`, READY_DEADLINE_MS)
    const running = await setUp(whole.call)
    let isOver = false
    const writing = writeAll(running, [node], () => isOver)
    const flows = async (kinds: typeof running, after: string) => {
      const before = kinds.map(({ acknowledged }) => acknowledged.length)
      const hasFlown = () =>
        kinds.every(({ acknowledged }, index) => acknowledged.length >= (before[index] ?? 0) + BETWEEN)
      await until(hasFlown, `traffic flows ${after}`, HEAL_DEADLINE_MS)
    }
    await flows(running, 'after the start')
    for (let kill = 0; kill < KILLS; kill++) {
      const name = String(1 + (kill % 2))
      const pid = await until(() => pidOf(whole, name), `process ${name} runs`)
      process.kill(pid, 'SIGKILL')
      // Frozen as soon as it exists, so that traffic can only come from the other process.
      const next = await until(() => {
        const found = pidOf(whole, name)
        return found !== pid && found
      }, `process ${name} has a replacement`)
      process.kill(next, 'SIGSTOP')
      try {
        // UDP is that of the first process.
        const served = running.filter(({ kind }) => name !== '1' || kind.name !== 'CoAP')
        await flows(served, `while process ${name} is gone`)
        expect(await readiness(whole)).toBe('degraded')
      } finally {
        process.kill(next, 'SIGCONT')
      }
      await until(async () => (await readiness(whole)) === 'ready', `process ${name} is back`, HEAL_DEADLINE_MS)
      await flows(running, `after the end of process ${name}`)
    }
    isOver = true
    await writing
    for (const one of running) await expectStored(one, whole.call, `${KILLS} kills`)
    const { text } = await whole.call('GET', '/metrics')
    expect(text).toContain(`skein_process_restarts_total{process="supervisor"} ${KILLS}`)
    for (const name of ['1', '2', 'supervisor'])
      expect(text).toMatch(new RegExp(`^skein_build_info.*process="${name}"`, 'm'))
    expect(text.match(/^# HELP skein_requests_total /gm)).toHaveLength(1)
  },
)

test('processes that cannot start end the program with their message', async () => {
  await using first = await start()
  await until(async () => (await readiness(first.whole)) === 'ready', first.whole.output(), READY_DEADLINE_MS)
  // Another program of the same user could share the port.
  await using second = await start({ SKEIN_MQTT_PORT: String(first.node.mqttPort) })
  expect(await second.whole.ended).toBe(1)
  await second.whole.silent
  expect(second.whole.output()).toContain(`port ${first.node.mqttPort} on 127.0.0.1 is already in use`)
  expect(await readiness(first.whole)).toBe('ready')
})

test('kill -9 of the supervisor ends its processes, and the next start serves', async () => {
  await using first = await start()
  await until(async () => (await readiness(first.whole)) === 'ready', first.whole.output(), READY_DEADLINE_MS)
  const pids = ['1', '2'].map((name) => pidOf(first.whole, name) ?? 0)
  first.whole.kill('SIGKILL')
  await until(() => pids.every((pid) => commandOf(pid) === ''), 'the processes have ended')
  await using again = launch(first.installation, 'programs/api.ts')
  await until(async () => (await readiness(again)) === 'ready', 'it serves again', READY_DEADLINE_MS)
})

test('in npm start the task manager answers at the base address, as if callers had connected to it', async () => {
  using installation = await createInstallation({ SKEIN_API_PROCESSES: '2' })
  await using whole = await startWhole(installation)
  expect(whole.output()).toContain('2 processes')
  // Once on a busy machine the first request was not passed on: the log of the process says the reason.
  await until(async () => (await whole.call('GET', '/tasks')).status === 200, `an answer; ${whole.output()}`)
  // Without a token: the caller is on this machine.
  const created = await whole.call('POST', '/tasks', { body: { name: 'passed on' } })
  expect(created.status, `${created.text} ${whole.output()}`).toBe(201)
  const { id } = created.json<{ id: string }>()
  expect((await whole.call('GET', `/tasks/${id}`)).json()).toMatchObject({ name: 'passed on' })
  const file = new FormData()
  const module = readFileSync(join(import.meta.dirname, '../../examples/add/add.wasm'))
  file.append('file', new Blob([module]), 'add.wasm')
  const uploaded = await whole.call('PUT', `/tasks/${id}/upload`, { body: file })
  expect(uploaded.status, uploaded.text).toBe(200)
  const invoked = await whole.call('POST', `/tasks/${id}/invoke`, { body: { inputs: [20, 22] } })
  expect(invoked.json()).toMatchObject({ results: [42] })
  for (const headers of [{ 'x-forwarded-for': '192.0.2.1' }, { 'skein-peer': '127.0.0.1', forwarded: 'for=192.0.2.1' }])
    expect((await whole.call('GET', '/tasks', { headers })).status).toBe(401)
  expect((await whole.call('DELETE', `/tasks/${id}`)).status).toBe(204)
  expect((await whole.call('GET', `/tasks/${id}`)).status).toBe(404)
  const { paths, components } = (await whole.call('GET', '/openapi.json')).json<{
    paths: Record<string, object>
    components: { schemas: Record<string, object> }
  }>()
  const document = JSON.parse(readFileSync(join(import.meta.dirname, '../../openapi.json'), 'utf8')) as {
    paths: Record<string, object>
    components: { schemas: Record<string, object> }
  }
  expect(Object.keys(paths).toSorted()).toEqual(Object.keys(document.paths).toSorted())
  expect(Object.keys(components.schemas).toSorted()).toEqual(Object.keys(document.components.schemas).toSorted())
  whole.kill('SIGTERM')
  expect(await whole.ended).toBe(0)
})
