/** The messages that a program sends over the IPC link to another one that it starts (`mayHaveParent`). */
import type { Environment } from '../config/index.ts'

/** The first message. */
export type ParentMessage = {
  /** Settings that the environment does not contain. */
  settings: Environment
  /** The parent shows the progress of its start: log lines wait until it sends STARTED. */
  isStarting: boolean
}

/** The start that the parent shows is over. */
export const STARTED = { isStarted: true } as const

export function isStartedMessage(message: unknown): boolean {
  return typeof message === 'object' && message !== null && 'isStarted' in message
}
