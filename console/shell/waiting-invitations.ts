/** Invitations of the user that wait for an answer. */

export const WAITING = { limit: 100, state: 'pending' } as const

export const isOpen = ({ expires_at: at }: { expires_at: string }) => Date.parse(at) > Date.now()
