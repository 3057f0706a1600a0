/**
 * The document in which modules run: of no origin, without cookies and without a network. Each step has a thread that is ended
 * after its deadline.
 */
// oxlint-disable-next-line import/default -- the suffix of Vite makes the default export
import GuestThread from './guest.ts?worker&inline'
import { READY, RUN_DEADLINE_MS, TRANSPILE_DEADLINE_MS } from './protocol.ts'
import type { RunComponent, Transpiled, TranspileComponent, TryAnswer, TryRequest } from './protocol.ts'

addEventListener('message', ({ data, source, origin }: MessageEvent<TryRequest>) => {
  if (source !== parent) return
  const answer = (given: TryAnswer) => parent.postMessage(given, { targetOrigin: origin })
  void tryModule(data).then(answer, (error: unknown) =>
    answer({ failure: error instanceof Error ? error.message : String(error) }),
  )
})

async function tryModule(request: TryRequest): Promise<TryAnswer> {
  if (request.tools === undefined)
    return await ask<TryAnswer>(new GuestThread(), request, [request.module], RUN_DEADLINE_MS, 'the module ran')
  const { module: component, tools, ...rest } = request
  const message: TranspileComponent = { component, files: tools.files }
  const made = await ask<{ transpiled: Transpiled } | { failure: string }>(
    threadOf(tools.transpile),
    message,
    [component, ...Object.values(tools.files)],
    TRANSPILE_DEADLINE_MS,
    'the component was transpiled',
  )
  if ('failure' in made) return made
  const { script, cores } = made.transpiled
  const run: RunComponent = { request: rest, cores }
  return await ask<TryAnswer>(
    threadOf(`${tools.run}\nstartComponent(${script})`),
    run,
    [],
    RUN_DEADLINE_MS,
    'the component ran',
  )
}

/** The policy allows threads of any text, but neither evaluation nor scripts of others. */
function threadOf(text: string): Worker {
  const blob = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }))
  const thread = new Worker(blob)
  URL.revokeObjectURL(blob)
  return thread
}

async function ask<T>(
  thread: Worker,
  message: unknown,
  transfer: Transferable[],
  deadlineMs: number,
  what: string,
): Promise<T> {
  const answer = Promise.withResolvers<T>()
  const timer = setTimeout(() => answer.reject(new Error(`timeout: ${what} for ${deadlineMs / 1_000} s`)), deadlineMs)
  thread.addEventListener('message', (event: MessageEvent<T>) => answer.resolve(event.data))
  thread.addEventListener('error', (event) => answer.reject(new Error(event.message || 'the thread did not start')))
  thread.postMessage(message, transfer)
  try {
    return await answer.promise
  } finally {
    clearTimeout(timer)
    thread.terminate()
  }
}

// The page does not know when this document listens, and its origin is not known here yet.
parent.postMessage(READY, { targetOrigin: '*' })
