/** Runs a module in a frame that has no origin: it reaches neither the page, nor its session, nor the network. */
import { READY, RUN_DEADLINE_MS } from './protocol.ts'
import type { TryAnswer, TryReport, TryRequest } from './protocol.ts'

/** Time of the frame to load, and to answer after the deadline of a run. */
const FRAME_DEADLINE_MS = 10_000

/** Throws an error with a sentence. The module of the request is transferred. */
export async function tryModule(request: TryRequest): Promise<TryReport> {
  const frame = document.createElement('iframe')
  frame.setAttribute('sandbox', 'allow-scripts')
  frame.setAttribute('aria-hidden', 'true')
  frame.title = 'Module runner'
  frame.tabIndex = -1
  frame.className = 'visually-hidden'
  frame.src = new URL('try.html', document.baseURI).href
  const stop = new AbortController()
  try {
    return await new Promise<TryReport>((resolve, reject) => {
      const deadline = RUN_DEADLINE_MS + 2 * FRAME_DEADLINE_MS
      const timer = setTimeout(() => reject(new Error('the frame of the module does not answer')), deadline)
      stop.signal.addEventListener('abort', () => clearTimeout(timer))
      window.addEventListener(
        'message',
        ({ data, source }: MessageEvent<typeof READY | TryAnswer>) => {
          if (source !== frame.contentWindow) return
          // A frame without an origin can be addressed only as any.
          if (data === READY)
            frame.contentWindow?.postMessage(request, { targetOrigin: '*', transfer: [request.module] })
          else if ('failure' in data) reject(new Error(data.failure))
          else resolve(data.report)
        },
        { signal: stop.signal },
      )
      document.body.append(frame)
    })
  } finally {
    stop.abort()
    frame.remove()
  }
}
