/** The last requests of the page. */

export type SentRequest = {
  readonly id: number
  readonly method: string
  readonly path: string
  readonly body: unknown
  /** Of a text. */
  readonly type?: string | undefined
}

const MAX_REQUESTS = 40
let requests: readonly SentRequest[] = []
let nextId = 1
const listeners = new Set<() => void>()

export const sentRequests = () => requests
export function onRequests(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function recordRequest(request: Omit<SentRequest, 'id'>): void {
  const others = requests.filter((one) => one.method !== request.method || one.path !== request.path)
  requests = [{ ...request, id: nextId++ }, ...others].slice(0, MAX_REQUESTS)
  for (const listener of listeners) listener()
}

/** A new page begins with an empty list. */
export function clearRequests(): void {
  requests = []
  for (const listener of listeners) listener()
}
