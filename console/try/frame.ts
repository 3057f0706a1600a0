/**
 * The document in which modules run: of no origin, without cookies and without a network. Each run has a thread that is ended
 * after its deadline.
 */
// oxlint-disable-next-line import/default -- the suffix of Vite makes the default export
import GuestThread from './guest.ts?worker&inline'
import { READY, RUN_DEADLINE_MS } from './protocol.ts'
import type { TryAnswer, TryRequest } from './protocol.ts'

addEventListener('message', ({ data, source, origin }: MessageEvent<TryRequest>) => {
  if (source !== parent) return
  const thread = new GuestThread()
  const answer = (given: TryAnswer) => {
    clearTimeout(timer)
    thread.terminate()
    parent.postMessage(given, { targetOrigin: origin })
  }
  const timer = setTimeout(
    () => answer({ failure: `timeout: the module ran for ${RUN_DEADLINE_MS / 1_000} s` }),
    RUN_DEADLINE_MS,
  )
  thread.addEventListener('message', (event: MessageEvent<TryAnswer>) => answer(event.data))
  thread.addEventListener('error', (event) => answer({ failure: event.message }))
  thread.postMessage(data, [data.module])
})

// The page does not know when this document listens, and its origin is not known here yet.
parent.postMessage(READY, { targetOrigin: '*' })
