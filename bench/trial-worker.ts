/** The worker of the trial: a gRPC stream and one warm thread with an instance of `add` for each run. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Worker, isMainThread, parentPort } from 'node:worker_threads'
import { Client, credentials } from '@grpc/grpc-js'
import { STREAM } from './trial-stream.ts'
import type { TrialEnd, TrialOrder } from './trial-stream.ts'

if (isMainThread) {
  const thread = new Worker(new URL(import.meta.url))
  thread.once('online', () => {
    const client = new Client(`127.0.0.1:${process.argv[2]}`, credentials.createInsecure())
    const stream = client.makeBidiStreamRequest(STREAM.path, STREAM.requestSerialize, STREAM.responseDeserialize)
    stream.on('data', (orders: TrialOrder[]) => thread.postMessage(orders))
    stream.on('error', () => process.exit(0))
    thread.on('message', (ends: TrialEnd[]) => stream.write(ends))
  })
} else {
  const module = new WebAssembly.Module(readFileSync(join(import.meta.dirname, '../examples/add/add.wasm')))
  parentPort?.on('message', (orders: TrialOrder[]) => {
    const ends = orders.map(({ key, inputs }): TrialEnd => {
      const { add } = new WebAssembly.Instance(module).exports as { add: (left: number, right: number) => number }
      return { key, results: [add(...inputs)] }
    })
    parentPort?.postMessage(ends)
  })
}
