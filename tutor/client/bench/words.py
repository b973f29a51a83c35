"""Common English words, one token each (with the space before them) in most vocabularies.

Which words a prompt has does not change what it costs. That no two prompts begin alike does.
"""

_TEXT = """
about above after again air all along also always and animal answer any around ask away back because
been before began best better between big black blue boat body book both box boy bring build but call came
can car carry change children city close cold come could country cut dark day deep did different door down
draw each earth east eat end enough even every eye face fall family far farm father feel feet few field
find fine fire first five fly follow food for form found four friend from front game gave girl give go
gold good got great green ground group grow had half hand hard has have head hear heat help her here high
him his hold home horse hot hour house how idea into island just keep kind king know land large last late
laugh learn leave left letter life light like line list listen little live long look love made make man
many map mark men mile mind money moon more morning most mother mountain move much music must name near
need never new next night north note number off often old once one only open order other our out over own
page paper part pass people picture place plan plant play point pull put question quick rain ran read red
rest right river road rock room round run said same saw school sea second see seem sentence set she ship
short should show side simple sing sit six sky sleep slow small snow some song soon sound south stand star
start stay step still stone stop story street strong study such sun sure table take talk tell ten than
that the their them then there these they thing think this those thought three through time together too
took top town travel tree true try turn two under until use very voice wait walk want warm watch water way
week well went were west what wheel when where which while white who why will wind winter wish with wood
word work world would write year yes you young your
"""
WORDS = tuple(_TEXT.split())
