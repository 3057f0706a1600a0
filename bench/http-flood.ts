/** Requests of other callers, sent by a thread of its own, so that they do not delay what the bench measures in its own thread. */
import { once } from 'node:events'
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import { load } from './http-load.ts'

type Flood = { port: number; requests: readonly Uint8Array[]; connections: number; durationMs: number }

/** Resolves to the number of answers. Each connection sends the requests in turn, one after the answer to the one before. */
export async function flood(options: Flood): Promise<number> {
  const thread = new Worker(new URL(import.meta.url), { workerData: options })
  const [answered] = (await once(thread, 'message')) as [number]
  await thread.terminate()
  return answered
}

if (!isMainThread) {
  const { requests, ...others } = workerData as Flood
  const { answered, refused } = await load({
    ...others,
    requests: requests.map((bytes) => Buffer.from(bytes)),
    status: 200,
  })
  parentPort?.postMessage(answered + refused)
}
