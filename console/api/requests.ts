/** The last requests of the page. */

export type SentRequest = {
  readonly id: number
  readonly method: string
  readonly path: string
  readonly body: unknown
  /** The content type of a text. */
  readonly type?: string | undefined
}

const MAX_REQUESTS = 40
const MAX_PAGES = 50
let requests: readonly SentRequest[] = []
let nextId = 1
/** The requests of the pages that were left, in the order of their visits. */
const pages = new Map<string, readonly SentRequest[]>()
const listeners = new Set<() => void>()

export const sentRequests = () => requests
export function onRequests(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

function show(next: readonly SentRequest[]): void {
  requests = next
  for (const listener of listeners) listener()
}

export function recordRequest(request: Omit<SentRequest, 'id'>): void {
  const others = requests.filter((one) => one.method !== request.method || one.path !== request.path)
  show([{ ...request, id: nextId++ }, ...others].slice(0, MAX_REQUESTS))
}

/**
 * A page begins with what it read when it was visited before: its data may still be there, and then nothing is sent again. What it changed
 * then is not part of it.
 */
export function turnPage(from: string, to: string): void {
  pages.delete(from)
  pages.set(
    from,
    requests.filter(({ method }) => method === 'GET'),
  )
  for (const oldest of pages.keys().take(Math.max(0, pages.size - MAX_PAGES))) pages.delete(oldest)
  show(pages.get(to) ?? [])
}

/** Removes all requests, because another user must not see them. */
export function forgetRequests(): void {
  pages.clear()
  show([])
}
