/** Runs a module in a frame that has no origin: it reaches neither the page, nor its session, nor the network. */
// oxlint-disable-next-line import/default -- the suffix of Vite makes the default export
import componentUrl from './component.ts?worker&url'
import { READY, RUN_DEADLINE_MS, TRANSPILE_DEADLINE_MS } from './protocol.ts'
import type { ComponentTools, TryAnswer, TryReport, TryRequest } from './protocol.ts'
// oxlint-disable-next-line import/default -- the suffix of Vite makes the default export
import transpileUrl from './transpile.ts?worker&url'

/** Time of the frame to load, and to answer after the deadline of a run. */
const FRAME_DEADLINE_MS = 10_000

/** 1.2 MB compressed, which is loaded for components alone. */
const TRANSPILER: Readonly<Record<string, URL>> = {
  'core.wasm': new URL(
    '../../node_modules/@bytecodealliance/jco-transpile/vendor/js-component-bindgen-component.core.wasm',
    import.meta.url,
  ),
  'core2.wasm': new URL(
    '../../node_modules/@bytecodealliance/jco-transpile/vendor/js-component-bindgen-component.core2.wasm',
    import.meta.url,
  ),
}

async function loadTools(): Promise<ComponentTools> {
  const load = async (url: string | URL) => {
    const response = await fetch(new URL(url, import.meta.url))
    if (!response.ok) throw new Error(`the transpiler was not loaded: the server answered ${response.status}`)
    return response
  }
  const files = Object.entries(TRANSPILER).map(async ([name, url]): Promise<[string, ArrayBuffer]> => [
    name,
    await (await load(url)).arrayBuffer(),
  ])
  const [transpile, run] = await Promise.all([transpileUrl, componentUrl].map(async (url) => (await load(url)).text()))
  return { transpile: transpile ?? '', run: run ?? '', files: Object.fromEntries(await Promise.all(files)) }
}

/** Throws an error with a sentence. The module of the request is transferred. */
export async function tryModule(given: Omit<TryRequest, 'tools'>, isComponent: boolean): Promise<TryReport> {
  const request: TryRequest = isComponent ? { ...given, tools: await loadTools() } : given
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
      const deadline = RUN_DEADLINE_MS + (isComponent ? TRANSPILE_DEADLINE_MS : 0) + 2 * FRAME_DEADLINE_MS
      const timer = setTimeout(() => reject(new Error('the frame of the module does not answer')), deadline)
      stop.signal.addEventListener('abort', () => clearTimeout(timer))
      window.addEventListener(
        'message',
        ({ data, source }: MessageEvent<typeof READY | TryAnswer>) => {
          if (source !== frame.contentWindow) return
          // A frame without an origin can be addressed only as `*`.
          if (data === READY)
            frame.contentWindow?.postMessage(request, {
              targetOrigin: '*',
              transfer: [request.module, ...Object.values(request.tools?.files ?? {})],
            })
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
