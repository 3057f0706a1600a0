/**
 * The floor of a call that commits: the same number of statements in one transaction, from Node, over the same socket,
 * into a table that is never read. No rules, no authorization, no journal, no index but the key.
 */
import pg from 'pg'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { newDataDir, removeDataDir } from './platform.ts'
import { median, repeat } from './statistics.ts'

export type BareTransactions = { connections: number; statements: number; durationMs: number; repeats: number }

/** Transactions in a second. */
export async function bareTransactions({
  connections,
  statements,
  durationMs,
  repeats,
}: BareTransactions): Promise<number> {
  const dataDir = newDataDir()
  const server = await startEmbeddedPostgres({ dataDir, log: () => undefined })
  const clients = Array.from({ length: connections }, () => new pg.Client(server.connection))
  try {
    await Promise.all(clients.map((client) => client.connect()))
    await clients[0]?.query(
      'CREATE TABLE bare (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)',
    )
    const rates = await repeat(1, repeats, async () => {
      const began = performance.now()
      let done = 0
      await Promise.all(
        clients.map(async (client) => {
          while (performance.now() - began < durationMs) {
            await client.query('begin')
            for (let place = 0; place < statements; place++)
              await client.query('INSERT INTO bare (body) VALUES ($1)', [`row ${place}`])
            await client.query('commit')
            done++
          }
        }),
      )
      return (done / (performance.now() - began)) * 1000
    })
    return median(rates)
  } finally {
    await Promise.all(clients.map((client) => client.end()))
    await server.stop()
    removeDataDir(dataDir)
  }
}
