/** What `skein doctor` found: what it is, and what to do about it. */
export type Verdict = 'ok' | 'warning' | 'error'
export type Finding = { verdict: Verdict; what: string; hint?: string | undefined }
export type Print = (finding: Finding) => void
