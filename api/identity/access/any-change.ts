/**
 * What "there is no such thing" depends on. Its arrival cannot be announced by a key that nobody knows yet, so such facts
 * depend on this one, which no entity has (keys begin at 1) and which the journal announces with every change.
 */
export const ANY_CHANGE = 0

/** What depends on any of a domain's entities, as a number of them does; announced with every change in the domain. */
export const anyChangeIn = (domainKey: number): number => -domainKey
