/** Texts that functions read. JavaScript would read others as another number or time, or as any. */
const DECIMAL = /^[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,4})?$/
const DURATION = /^[+-]?(\d{1,12}(\.\d{1,9})?(ns|us|ms|s|m|h))+$/
const INTEGER = /^[+-]?\d{1,19}$/
const RFC_3339 = /^\d{4}-\d\d-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/

/** What each function reads, by its name. */
const FORMS: Readonly<Record<string, (text: string) => boolean>> = {
  int: (text) => INTEGER.test(text),
  double: (text) => DECIMAL.test(text),
  duration: (text) => DURATION.test(text),
  timestamp: (text) => {
    const match = RFC_3339.exec(text)
    if (match === null) return false
    const [year, month] = [Number(text.slice(0, 4)), Number(text.slice(5, 7))]
    return (
      month >= 1 &&
      month <= 12 &&
      Number(match[1]) >= 1 &&
      Number(match[1]) <= new Date(Date.UTC(year, month, 0)).getUTCDate()
    )
  },
}

/** Whether a function reads the text: undefined for functions that read any. */
export function textFormOf(name: string): ((text: string) => boolean) | undefined {
  return Object.hasOwn(FORMS, name) ? FORMS[name] : undefined
}
