/** Devices that know versions from after a backup, when the backup is restored: they become what it says, and undo nothing that they have not seen. */
import { join } from 'node:path'
import mqtt from 'mqtt'
import { expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { createInstallation, launch, startWhole } from '../harness/whole.ts'
import type { Installation } from '../harness/whole.ts'
import { setUpDomain } from './losses.ts'

const DEADLINE_MS = 60_000

type Json = Record<string, unknown>
type State = { desired: Json; reported: Json; delta: Json; version: number }

/** Runs a program of the same installation until it ends. */
async function run(installation: Installation, program: 'backup' | 'restore', file: string, keyFile: string) {
  const flag = program === 'backup' ? '--with-key' : '--key'
  const running = launch(installation, [`programs/${program}.ts`, file, flag, keyFile])
  expect(await running.ended, running.output()).toBe(0)
}

test('a device with a later version becomes what a restored backup says', { timeout: 300_000 }, async () => {
  await using stack = new AsyncDisposableStack()
  const [port] = (await freePorts(1)) as [number]
  const original = stack.use(await createInstallation({ SKEIN_MQTT_PORT: String(port) }))
  const { dataDir, [Symbol.dispose]: dispose } = await createInstallation()
  stack.defer(dispose)
  const environment = { ...original.environment, SKEIN_DATA_DIR: dataDir }
  const copy: Installation = { ...original, dataDir, environment, [Symbol.dispose]: dispose }
  // In a folder that is removed with the original.
  const [file, keyFile] = [join(original.dataDir, 'before.tar'), join(original.dataDir, 'before.key')]

  let whole = await startWhole(original)
  stack.defer(async () => await whole[Symbol.asyncDispose]())
  const { id: domainId, authorization, create } = await setUpDomain(whole.call)
  const newDevice = async () => {
    const path = `/${domainId}/clients`
    const { id, credentials } = await create<{ id: string; credentials: { secret: string } }>(path, { name: 'device' })
    return { id, secret: credentials.secret, path: `${path}/${id}/desired-state` }
  }
  const state = async (path: string, method = 'GET', body?: Json) => {
    const answer = await whole.call(method, path, { authorization, ...(body === undefined ? {} : { body }) })
    expect(answer.status, answer.text).toBe(200)
    return answer.json<State>()
  }
  const [connected, polling] = [await newDevice(), await newDevice()]
  const asPolling = async (method: string, body?: Json, headers: Record<string, string> = {}) =>
    await whole.call(method, `/c/${domainId}/state`, {
      authorization: `Client ${polling.secret}`,
      headers,
      ...(body === undefined ? {} : { body }),
    })

  // As the devices of examples/device-state: it subscribes with each connection, and ignores what is not newer than what it has seen.
  const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
    username: connected.id,
    password: connected.secret,
    reconnectPeriod: 100,
    reconnectOnConnackError: true,
    connectTimeout: 5_000,
  })
  stack.defer(() => client.endAsync(true))
  client.on('error', () => undefined)
  const is: Json = {}
  let newest = 0
  client.on('message', (_topic, payload) => {
    const { version, delta } = JSON.parse(payload.toString()) as State
    if (version <= newest) return
    newest = version
    Object.assign(is, delta)
    client.publish(`c/${domainId}/state/reported`, JSON.stringify(delta), { qos: 1 })
  })
  const becomes = async (expected: Json) => {
    const isDone = async () => Object.keys((await state(connected.path)).delta).length === 0
    await until(isDone, `the device is ${JSON.stringify(expected)}`, DEADLINE_MS)
    expect(is).toEqual(expected)
  }

  for (const { path } of [connected, polling]) await state(path, 'PATCH', { firmware: '1.4', mode: 'one' })
  await run(original, 'backup', file, keyFile)
  await client.subscribeAsync(`c/${domainId}/state/desired`, { qos: 1 })
  await becomes({ firmware: '1.4', mode: 'one' })
  for (const { path } of [connected, polling]) await state(path, 'PATCH', { mode: 'two' })
  await becomes({ firmware: '1.4', mode: 'two' })
  const known = (await asPolling('PATCH', { firmware: '1.4', mode: 'two' })).json<State>()
  expect(known.delta).toEqual({})

  whole.kill('SIGKILL')
  await whole.ended
  await run(copy, 'restore', file, keyFile)
  whole = await startWhole(copy)

  const refused = await asPolling('PATCH', { mode: 'two' }, { 'if-match': String(known.version) })
  expect(refused.status, refused.text).toBe(412)
  const { current } = refused.json<{ current: State }>()
  expect(current).toMatchObject({ desired: { firmware: '1.4', mode: 'one' }, reported: {} })
  expect(current.version).toBeGreaterThan(known.version)
  const body = { firmware: '1.4', mode: 'one' }
  const taken = await asPolling('PATCH', body, { 'if-match': String(current.version) })
  expect(taken.json<State>()).toMatchObject({ reported: body, delta: {} })

  await becomes({ firmware: '1.4', mode: 'one' })
  expect((await state(connected.path)).version).toBeGreaterThan(known.version)
})
