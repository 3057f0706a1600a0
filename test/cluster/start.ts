/** One cluster for all tests of a `describe`, and its table at the end. */
import { afterAll, beforeAll } from 'vitest'
import { Cluster } from './cluster.ts'
import type { ClusterOptions } from './cluster.ts'

const START_DEADLINE_MS = 240_000

export function startCluster(options: ClusterOptions = {}): () => Cluster {
  let cluster: Cluster | undefined
  beforeAll(async () => {
    cluster = await Cluster.start(options)
  }, START_DEADLINE_MS)
  afterAll(async () => {
    // Not when the start failed.
    if (cluster !== undefined) process.stdout.write(`\nTime without service\n\n${cluster.table}`)
    await cluster?.[Symbol.asyncDispose]()
  }, START_DEADLINE_MS)
  return () => cluster as Cluster
}
