"""The engine's vocabulary: which words of plain English mean the same (kinship, arithmetic, dates, works, places).

General words only. No name, title or fact of any data set is in here.
"""

from __future__ import annotations

# One group per meaning, indented lines continue it. A word may stand in several; the first word names the meaning.
GROUPS = """
spouse husband wife married marry marries widow widower consort spousal marriage
father dad paternal
mother mom maternal
parent father mother parents
child son daughter children kid offspring
sibling brother sister siblings
kin spouse husband wife married father mother parent child son daughter sibling brother sister genealogy family
  familial relationship relation relative relatives lineage ancestry kinship grandfather grandmother grandparent
  stepmother stepfather niece nephew uncle aunt genealogical paternal maternal
birth born birthdate birthday birthplace dob births
death die died dies dead deceased dod
biography biographical bio life person birth born birthdate birthday death die died born people figure
  individual profile
founding founded founder found founders establish established establishing establishment foundation formed
  formation started inception
opening opened open opens inaugurated
author writer wrote written writes novelist poet authored writing wrote
book novel literature literary story poem title publication published author
publisher published publishing publication publishes magazine journal newspaper
film movie cinema motion picture filmography directed director cast starring telemovie
director directed direct directs filmmaker
actor actress cast played plays play portrayed portrays portray starring starred stars star role acted performer
  character
music song album band singer musician artist musical recorded record composer composed drummer duo track sung
  sings
painting painter painted artwork art paints
composer composed compose composes composition
creator created create creates made maker invented inventor invention invent
designer designed design architect built building builder constructed
city town municipality
country nation nationality citizenship state
capital
place location located locate locates geo geographic geographical geography city town country county region
  where area site headquarters headquartered headquarter seat address
headquarters headquartered headquarter seat based office
education educated educate study studied studies university college school attended attend graduated graduate
  alma educational academic
company corporation firm business organization organisation enterprise manufacturer employer
member membership members joined
team club sports sport player played athlete
leader president mayor ruler king queen monarch governor minister head
award prize medal won winner laureate
population inhabitants people residents populous
height tall high altitude elevation higher taller highest tallest
length long longer longest lengthy
area size surface
depth deep deeper
weight heavy heavier mass
distance far apart
age old older oldest young younger youngest
price cost costs fee amount
currency money
river stream flows flow empty empties
mountain summit peak
language spoken speak speaks
year years annual yearly
month months
week weeks weekly
day days daily
weekday day-of-week dayofweek
hour hours time
date dates calendar day month year when
timezone zone utc gmt time
sum add added adding addition total plus summation totals sums
product multiply multiplied multiplying multiplication times
difference subtract subtracted subtracting substract substracting subtraction minus more less fewer additional
  gap diff
quotient divide divided dividing division ratio
square squared squaring
cube cubed
power exponent exponentiation square cube raised
root sqrt
remainder modulo mod modulus
average mean
maximum max largest greatest larger bigger biggest greater most highest
minimum min smallest least smaller lowest
round rounded rounding nearest closest
arithmetic calculator calculate calculation math mathematical operation sum difference product multiply add
  subtract divide adding multiplying substracting subtracting compute
reverse reversed reversing backwards reversal backward
digit digits
number numbers numeric numerical integer
prime primes
factor factors factorization factorisation factorizer divisor divisors
palindrome palindromic
ascii
binary
hexadecimal hex
roman
even odd parity
letter letters character characters char chars alphabet alphabetic
vowel vowels
consonant consonants
syllable syllables
word words
count many number length total counter counting counts size quantity
initial initials
first initial beginning leading
second
third
last final end ending trailing
forename first-name given
surname last-name
name names named
uppercase upper capitalize
lowercase lower
concatenate concatenation concatenator concatenated join joined joining combine combined append
alphabetical sort sorted sorter sorting order
unique distinct different
repeated repeat duplicate duplicates repeating
longest
shortest
substring
combination combinations
convert conversion converter converted
next following after later add subsequent increment incrementer
previous before prior earlier preceding ago
"""

STOP_WORDS = """
a an the of in on at to for from by with and or is are was were be been being do does did has have had that
which who whom whose what when where how why it its this these those as than then so if also there here his her
their he she they you your our my me i we us not no any some all each every into onto out up about over under
between during per via please given following using use used one
"""

NUMBER_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""

ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"

# words that open a sentence with a capital and are no name
OPENERS = """
what which who whom whose when where why how in on at is are was were did do does has have had can could the a an of
from for to by name tell find give if whats according between add take before after during both among
compute count convert list please return show state use starting i into under with across
"""

# small words inside names: always ("Lord of the Rings"), or only when wanted ("Death in Venice")
NAME_WORDS = "of the de da di del della des du la le les el los van von der den y e & 'n' n' af av zu al bin ibn"
WEAK_NAME_WORDS = "and at from in on to for with by"


def groups() -> list[list[str]]:
    """The groups of `GROUPS` as lists of words."""
    found: list[list[str]] = []
    for line in GROUPS.strip("\n").splitlines():
        if line.startswith("  "):
            found[-1] += line.split()
        else:
            found.append(line.split())
    return found


def words(text: str) -> frozenset[str]:
    """The words of one of the texts above."""
    return frozenset(text.split())
