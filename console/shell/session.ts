/** The session of this browser, for parts that show it. */
import { useSyncExternalStore } from 'react'
import { onSession, sessionState } from '../api/session.ts'

export const useSession = () => useSyncExternalStore(onSession, sessionState)
