/** The states of a command: it is open until the device has answered, a time has passed, or a user has cancelled it. Pure. */

export const OPEN_STATES = ['queued', 'delivered'] as const
/** What a device answers. */
export const ANSWERS = ['succeeded', 'failed', 'rejected'] as const
/** The ends without an answer. */
const UNANSWERED = ['timed_out', 'expired', 'cancelled'] as const

export const COMMAND_STATES = [...OPEN_STATES, ...ANSWERS, ...UNANSWERED] as const

export type Answer = (typeof ANSWERS)[number]
export type CommandState = (typeof COMMAND_STATES)[number]
export type EndState = Exclude<CommandState, (typeof OPEN_STATES)[number]>

export const isOpen = (state: CommandState): boolean => OPEN_STATES.some((open) => open === state)
