/**
 * kill -9 between the answer to a user and the delivery to a device: what was desired is received after the restart, in its newest form,
 * and what a device reported and had acknowledged is stored. The device is mqtt.js, which connects again by itself.
 */
import mqtt from 'mqtt'
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { DEADLINE_MS, prepare, startApi } from './kill-support.ts'

const KILLS = 3

type Received = { version: number; delta: Record<string, unknown> }

test(
  'kill -9 loses no desired state that was acknowledged, and no acknowledged report',
  { timeout: 400_000 },
  async () => {
    await using stack = new AsyncDisposableStack()
    const { installation, port } = await prepare(stack)
    let whole = await startApi(installation)
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const login = await whole.call('POST', '/users/tokens/issue', {
      body: { identity: 'admin', secret: 'the-first-admin' },
    })
    const authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
    const { id: domainId } = (await whole.call('POST', '/domains', { body: { name: 'kill' }, authorization })).json<{
      id: string
    }>()
    const made = (await whole.call('POST', `/${domainId}/clients`, { body: { name: 'c' }, authorization })).json<{
      id: string
      credentials: { secret: string }
    }>()
    const path = `/${domainId}/clients/${made.id}/desired-state`

    const received: Received[] = []
    const device = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
      username: made.id,
      password: made.credentials.secret,
      clientId: 'device',
      clean: false,
      reconnectPeriod: 50,
      reconnectOnConnackError: true,
      connectTimeout: 5000,
    })
    device.on('error', () => undefined)
    stack.defer(async () => await device.endAsync(true))
    device.on('message', (_topic, payload) => received.push(JSON.parse(payload.toString()) as Received))
    await device.subscribeAsync(`c/${domainId}/state/desired`, { qos: 1 })

    for (let kill = 1; kill <= KILLS; kill++) {
      await device.publishAsync(`c/${domainId}/state/reported`, JSON.stringify({ reports: kill }), { qos: 1 })
      let last = 0
      for (const step of [1, 2, 3]) {
        const answer = await whole.call('PATCH', path, { body: { kill, step }, authorization })
        last = answer.json<{ version: number }>().version
      }
      whole.kill('SIGKILL')
      await whole.ended
      whole = await startApi(installation)
      await until(() => received.at(-1)?.version === last, 'the newest state is received', DEADLINE_MS)
      expect(received.at(-1)?.delta).toEqual({ kill, step: 3 })
      const versions = received.map(({ version }) => version)
      expect(versions).toEqual(versions.toSorted((one, other) => one - other))
      const state = (await whole.call('GET', path, { authorization })).json<{ reported: object; version: number }>()
      expect(state).toMatchObject({ reported: { reports: kill }, version: last })
    }
  },
)
