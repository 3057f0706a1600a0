/** The list of words that are not used. A word joins it when its last use is gone. */

export type Replaced = { word: RegExp; use: string; example: string }

/** Names: types, functions, fields, files. */
export const NAMES: readonly Replaced[] = [
  { word: /\b(?:start)?Ground\b|core\/ground/, use: 'Infrastructure', example: 'startGround' },
  { word: /\b(?:Live|Event)Hub\b/, use: 'LiveFanOut, EventFanOut', example: 'LiveHub' },
  { word: /core\/log\//, use: 'core/changelog', example: "from '#core/log/index.ts'" },
  { word: /\bKinship/, use: 'GroupHierarchy', example: 'KinshipService' },
  { word: /\bHappening/, use: 'SessionEvent', example: 'Happening' },
  { word: /\bSight\b/, use: 'JournalVisibility', example: 'Sight' },
  { word: /\bmayAdopt\b/, use: 'canSetChild', example: 'mayAdopt' },
  { word: /\bpoke\b/, use: 'wake', example: 'poke(): void' },
  { word: /\bsayAgain\b/, use: 'resendUnconfirmed', example: 'sayAgain()' },
  { word: /\bbury\b|\bBurial/, use: 'onRunnerExit', example: '#bury(' },
  { word: /\bSuspects?\b/, use: 'CrashQuarantine', example: 'Suspects' },
  { word: /\bTicketOffice\b/, use: 'TicketIssuer', example: 'TicketOffice' },
  { word: /\b(?:Lane|LaneHost|openLane)\b/, use: 'IngestShard or GuestThread', example: 'Lane' },
  { word: /\b(?:Tally|Unmerged)\b/, use: 'PartialAggregate', example: 'Tally' },
  { word: /\b(?:Manner|Audience)\b/, use: 'DeliveryOptions, SubscriptionIndex', example: 'Manner' },
  { word: /\bstart(?:Session)?Keeper\b/, use: 'startRetention, startSessionMaintenance', example: 'startKeeper' },
  { word: /\bwritePatiently\b/, use: 'writeWithRetry', example: 'writePatiently' },
  { word: /\bjudgeByBytes\b/, use: 'sniffContent', example: 'judgeByBytes' },
]

/** Sentences that users read. */
export const DOCUMENT_WORDS: readonly Replaced[] = [
  { word: /\bcounts? for nothing\b/i, use: 'is ignored', example: 'limit counts for nothing' },
  { word: /\bgoes? before\b/i, use: 'overrides', example: 'a token goes before a login' },
  { word: /\bwhoever\b/i, use: 'the caller, the user, the device', example: 'whoever reads' },
  { word: /\bexpress lane\b/i, use: 'nothing: it is gone', example: 'the express lane' },
  { word: /\bwhat is so already\b/i, use: 'idempotent', example: 'what is so already' },
  {
    word: /\bany generation\b|\bof the (?:older|newer) generations?\b/i,
    use: 'the product and version',
    example: 'any generation',
  },
]
