/**
 * Requests that were sent before the code that wants their answers was there: on a slow line, that is seconds. An answer is taken once, and
 * an old one never.
 */
import { apiBase } from './base.ts'

/** An answer that waited longer may be of another session, or of other data. */
const MAX_AGE_MS = 30_000

/** The server gives a token to scripts of the console alone. */
export const SESSION_HEADERS = { 'X-Skein-Console': '1' }
export const TOKEN_PATH = 'console/session/token'

export type SentRequest = { readonly sentMs: number; readonly response: Promise<Response> }

const prepared = new Map<string, SentRequest>()
/** Replaced when this browser signs in or out. */
let session = Symbol('session')

/** Tells the other tabs that this browser signed in or out. */
export const tabs = new BroadcastChannel('skein-session')
tabs.addEventListener('message', forgetPrepared)

/** What was asked for is of the session before: this browser signed in or out. */
export function forgetPrepared(): void {
  prepared.clear()
  session = Symbol('session')
}

/** Returns whether this browser has neither signed in nor out since. */
export function watchSession(): () => boolean {
  const before = session
  return () => session === before
}

export function sendRequest(path: string, options: RequestInit): SentRequest {
  return { sentMs: performance.now(), response: fetch(new URL(path, apiBase), options) }
}

export function prepare(path: string, options: RequestInit): SentRequest {
  const sent = sendRequest(path, options)
  prepared.set(path, sent)
  return sent
}

const isFresh = (sent: SentRequest | undefined) => sent !== undefined && performance.now() - sent.sentMs < MAX_AGE_MS

export const isPrepared = (path: string): boolean => isFresh(prepared.get(path))

/** The request if it was sent already; the next one of this path is sent. */
export function takePrepared(path: string): SentRequest | undefined {
  const sent = prepared.get(path)
  prepared.delete(path)
  return isFresh(sent) ? sent : undefined
}
