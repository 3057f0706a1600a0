/**
 * The key that negative cache entries depend on. The key of an entity that does not exist yet is unknown, so such
 * entries depend on this key, which no entity has (keys begin at 1). The journal publishes it with every change.
 */
export const ANY_CHANGE = 0

/**
 * The key of cache entries that depend on any entity of a domain, such as counts. It is published with every change in
 * the domain.
 */
export const anyChangeIn = (domainKey: number): number => -domainKey
