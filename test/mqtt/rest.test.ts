/** What a node says of itself for the sessions: at once where something moved, now and then while nothing does, and again when it was forgotten. */
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { test } from 'vitest'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import { aDevice, startNode } from './support.ts'

const ROUND_MS = 10

const plant = useWorld(() => startPlant())

type Word = { node: string; seen: string; position: string | null }

async function words(): Promise<Word[]> {
  const { rows } = await sql<Word>`SELECT id AS node, seen_at::text AS seen, position FROM nodes`.execute(
    plant.api.database.db,
  )
  return rows
}

async function wordOf(node: string): Promise<Word | undefined> {
  return (await words()).find((word) => word.node === node)
}

/** Starts a node and gives its name, by the word that was not there before. */
async function aNode(deadAfterSeconds: number) {
  const before = new Set((await words()).map(({ node }) => node))
  const node = await startNode(plant.api, { roundMs: ROUND_MS, deadAfterSeconds })
  let name = ''
  await until(async () => {
    name = (await words()).find((word) => !before.has(word.node))?.node ?? ''
    return name !== ''
  }, 'the node says that it lives')
  return { ...node, name }
}

test('an idle node writes nothing for a while, and changes of its sessions are written at once', async () => {
  const node = await aNode(3600)
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ clientId: 'still', clean: false })
  peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: device.topic, qos: 1 }] })
  await peer.next('suback')
  let still: Word | undefined
  // A busy machine writes the position of the subscription later.
  await until(async () => {
    still = await wordOf(node.name)
    await sleep(30 * ROUND_MS)
    return isDeepStrictEqual(await wordOf(node.name), still)
  }, 'thirty rounds write nothing')
  peer.send({ cmd: 'publish', topic: device.topic, payload: '1', qos: 1, messageId: 2, dup: false, retain: false })
  await peer.next('puback')
  await until(async () => (await wordOf(node.name))?.position !== still?.position, 'the position is written')
  await node.stop()
})

test('an idle node writes its heartbeat long before it would be declared dead', async () => {
  const node = await aNode(2)
  const first = await wordOf(node.name)
  await until(async () => (await wordOf(node.name))?.seen !== first?.seen, 'the next word')
  await node.stop()
})

test('a node whose row was removed by others writes it again in its next round', async () => {
  const node = await aNode(3600)
  await sql`DELETE FROM nodes WHERE id = ${node.name}`.execute(plant.api.database.db)
  await until(async () => (await wordOf(node.name)) !== undefined, 'it is there again')
  await node.stop()
})
