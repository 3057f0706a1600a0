/** The address of a request: the same operation and input always have the same one. */

export type Address = {
  params?: Record<string, string>
  query?: Record<string, string | number | boolean | undefined>
}

export function pathOf(operation: string, { params = {}, query = {} }: Address): string {
  const template = operation.slice(operation.indexOf(' ') + 2)
  const path = template.replaceAll(/\{(\w+)\}/g, (_all, name: string) => encodeURIComponent(params[name] ?? ''))
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== '') search.set(name, String(value))
  return search.size === 0 ? path : `${path}?${search.toString()}`
}
