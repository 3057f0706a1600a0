/** The parts of `$share/<group>/<filter>` (section 4.8.2); undefined when it is malformed. */
export function parseShared(filter: string): { group: string | undefined; topicFilter: string } | undefined {
  if (!filter.startsWith('$share/')) return { group: undefined, topicFilter: filter }
  const end = filter.indexOf('/', '$share/'.length)
  const group = filter.slice('$share/'.length, end)
  const topicFilter = filter.slice(end + 1)
  if (end < 0 || group === '' || topicFilter === '' || /[+#]/.test(group)) return undefined
  return { group, topicFilter }
}
