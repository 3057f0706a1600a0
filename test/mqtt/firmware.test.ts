/**
 * docs/guides/device-state.md, "A firmware version for a thousand devices": the version is desired of all that have a tag, the devices receive it over
 * MQTT, say how far they are, and fail or succeed, and the user sees it in counts and lists.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Device } from '../messages/support.ts'
import type { Peer } from './peer.ts'
import { connectPeer, publish, receive, subscribe } from './peer.ts'
import type { Node } from './support.ts'
import { as, startNode } from './support.ts'

const DEVICES = 1_000
const AT_ONCE = 50
/** They cannot become what they should be. */
const FAILING = 10
/** They are never switched on. */
const OFF = 8
/** They are switched on when the others have the version. */
const LATE = 100
const DEADLINE_MS = 120_000

const plant = useWorld(() => startPlant())
let node: Node
beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

type Progress = { total: number; in_sync: number; pending: number; never_seen: number }

async function forEach<T>(items: readonly T[], act: (item: T, index: number) => Promise<void>): Promise<void> {
  const left = items.entries()
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (const [index, item] of left) await act(item, index)
    }),
  )
}

/** A device that installs the version that it receives, in two steps. */
async function switchOn(device: Device, fails: boolean): Promise<Peer> {
  const peer = await connectPeer(node.port, as(device))
  const report = async (what: object) => await publish(peer, `c/${plant.domainId}/state/reported`, JSON.stringify(what))
  await subscribe(peer, `c/${plant.domainId}/state/desired`)
  await report({ firmware: '1.3' })
  const { delta } = JSON.parse(await receive(peer)) as { delta: { firmware: string } }
  await report({ update: { state: 'downloading', percent: 40 } })
  if (fails) await report({ update: { state: 'failed', reason: 'the signature is wrong', percent: null } })
  else await report({ firmware: delta.firmware, update: null })
  return peer
}

test('a version reaches a thousand devices, and what is left is counted and listed', { timeout: 400_000 }, async () => {
  const { owner, domainId } = plant
  const made = await owner.call(
    'POST',
    `/${domainId}/clients/bulk`,
    Array.from({ length: DEVICES }, (_, index) => ({ name: `pump ${index}`, tags: ['pump'] })),
  )
  const devices = made
    .json<{ clients: { id: string; credentials: { secret: string } }[] }>()
    .clients.map(({ id, credentials: { secret } }) => ({ id, secret }))
  expect(devices).toHaveLength(DEVICES)
  const many = `/${domainId}/clients/desired-state?tag=pump`
  const progress = async () => (await owner.call('GET', many)).json<Progress>()
  const listed = async (query: string) => {
    const answer = await owner.call('GET', `/${domainId}/clients?tag=pump&limit=1&${query}`)
    expect(answer.status, answer.text).toBe(200)
    return answer.json<{ total: number; clients: { id: string }[] }>()
  }
  const containing = async (value: object) => await listed(`reported=${encodeURIComponent(JSON.stringify(value))}`)

  const dry = await owner.call('PATCH', `${many}&dry_run=true`, { firmware: '1.4' })
  expect(dry.json()).toMatchObject({ total: DEVICES })
  expect(await progress()).toEqual({ total: DEVICES, in_sync: 0, pending: 0, never_seen: 0 })
  const set = await owner.call('PATCH', many, { firmware: '1.4' })
  expect([set.status, set.json()]).toEqual([200, { total: DEVICES, changed: DEVICES }])
  expect(await progress()).toEqual({ total: DEVICES, in_sync: 0, pending: 0, never_seen: DEVICES })

  const peers: Peer[] = []
  const late = devices.slice(OFF, OFF + LATE)
  const first = devices.slice(OFF + LATE)
  const isFailing = (index: number) => index < FAILING
  await forEach(first, async (device, index) => void peers.push(await switchOn(device, isFailing(index))))
  const installed = DEVICES - OFF - LATE - FAILING
  expect(await progress()).toEqual({
    total: DEVICES,
    in_sync: installed,
    pending: FAILING,
    never_seen: OFF + LATE,
  })
  expect((await containing({ firmware: '1.4' })).total).toBe(installed)
  expect((await containing({ update: { state: 'failed' } })).total).toBe(FAILING)
  expect((await containing({ update: { state: 'downloading' } })).total).toBe(0)
  expect((await listed('out_of_sync=true')).total).toBe(OFF + LATE + FAILING)

  await forEach(late, async (device) => void peers.push(await switchOn(device, false)))
  expect(await progress()).toMatchObject({ in_sync: installed + LATE, pending: FAILING, never_seen: OFF })

  // A version that the failing ones can install: all receive it over the connections that they have.
  const fixed = await owner.call('PATCH', many, { firmware: '1.4.1' })
  expect(fixed.json()).toEqual({ total: DEVICES, changed: DEVICES })
  await forEach(peers, async (peer) => {
    const { delta } = JSON.parse(await receive(peer)) as { delta: object }
    await publish(peer, `c/${domainId}/state/reported`, JSON.stringify({ ...delta, update: null }))
  })
  await until(async () => (await progress()).in_sync === DEVICES - OFF, 'all have the version', DEADLINE_MS)
  expect(await progress()).toEqual({ total: DEVICES, in_sync: DEVICES - OFF, pending: 0, never_seen: OFF })
  const { clients } = (await owner.call('GET', `/${domainId}/clients?tag=pump&out_of_sync=true`)).json<{
    clients: { id: string }[]
  }>()
  expect(clients.map(({ id }) => id).toSorted()).toEqual(
    devices
      .slice(0, OFF)
      .map(({ id }) => id)
      .toSorted(),
  )
  for (const peer of peers) peer[Symbol.dispose]()
})
