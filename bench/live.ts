/** A publisher and a follower of messages, for benches of delivery latency. */
import type { Platform } from './platform.ts'

/** Publishes one SenML value on a path of messages; returns the status of the answer. */
export async function publishValue(
  node: Platform,
  path: string,
  authorization: string,
  value: number,
): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${node.port}${path}`, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/senml+json' },
    body: `[{"n":"v","v":${value}}]`,
  })
  await response.arrayBuffer()
  return response.status
}

/** A stream of events on a node: when each value arrived (the last of its message), and when the stream ended. */
export async function followValues(node: Platform, path: string, authorization: string) {
  const came = new Map<number, number>()
  const { promise: ended, resolve } = Promise.withResolvers<number>()
  const abort = new AbortController()
  const response = await fetch(`http://127.0.0.1:${node.port}${path}/live`, {
    headers: { authorization },
    signal: abort.signal,
  })
  void (async () => {
    let text = ''
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk).toString()
      for (const [, value] of text.matchAll(/"v": ?(\d+)[,}]/g))
        if (!came.has(Number(value))) came.set(Number(value), performance.now())
      text = text.slice(-500)
    }
    resolve(performance.now())
  })().catch(() => undefined)
  return { came, ended, close: () => abort.abort() }
}
